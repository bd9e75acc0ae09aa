/* The fast kernels of attention, rope and embed against the reference in double: every kind, form and option, shapes that fill no
   tile, operands inside of larger tensors, each SIMD level of this processor; and the same bits for any number of threads. */
#include "kit.h"

typedef struct problem {
    int64_t        B, Tq, Tk, H, d, dv;
    tn_attend_desc a;
    bool           state;
    int64_t        T0;                  /* keys that go into the state first, by a call of their own */
} problem;

/* o, dq, dk, dv one after the other; without the gradients where there is a state, which then is the second */
typedef struct results { double *x; int64_t n[4], all; } results;

static tn_tensor *part_of(tn_tensor *whole, int64_t T, int64_t n, int64_t d, bool inside)
{
    return inside ? tn_slice(tn_slice(tn_slice(whole, 1, 1, T + 1), 2, 2, n + 2), 3, 0, d) : whole;
}

/* [B,T,n,d] of numbers that a float holds; `inside` a tensor with more heads, positions and columns, which is `whole` */
static tn_tensor *operand(tn_ctx *ctx, int64_t B, int64_t T, int64_t n, int64_t d, uint64_t seed, bool inside, tn_tensor **whole)
{
    int64_t shape[4] = {B, T + 2 * inside, n + 3 * inside, d + inside}, count = 1, at[4];
    for (int i = 0; i < 4; i++) count *= shape[i];
    float     *x = (float *)malloc(sizeof *x * (size_t)(count + 1));
    tn_tensor *t = tn_tensor_nd(ctx, TN_REAL, 4, shape);
    if (!x || !t) { free(x); return NULL; }
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i;
        for (int axis = 3; axis >= 0; axis--) { at[axis] = rest % shape[axis]; rest /= shape[axis]; }
        at[1] -= inside;
        at[2] -= 2 * inside;                /* the same numbers, inside or not */
        uint64_t state = seed * 1000003u + (uint64_t)(((at[0] * (T + 8) + at[1] + 4) * (n + 8) + at[2] + 4) * (d + 8) + at[3]);
        x[i] = (float)test_random_real(&state);
    }
    tn_write(t, TN_F32, x, count);
    free(x);
    if (whole) *whole = t;
    return part_of(t, T, n, d, inside);
}

static void take(results *r, int which, const tn_tensor *t)
{
    if (!CHECK(t != NULL)) return;
    r->n[which] = tn_tensor_count(t);
    r->x = (double *)realloc(r->x, sizeof *r->x * (size_t)(r->all + r->n[which] + 1));
    CHECK(tn_read(t, TN_F64, r->x + r->all, r->n[which]) == TN_OK);
    r->all += r->n[which];
}

/* The keys [from,to) and the queries that stand there */
static tn_tensor *attend_some(tn_ctx *ctx, const problem *p, tn_tensor *q, tn_tensor *k, tn_tensor *v, tn_attend_desc *a, int64_t from,
                              int64_t to)
{
    int64_t ahead = p->Tk - p->Tq, q_from = from > ahead ? from - ahead : 0;
    a->past = from;
    return tn_attend(ctx, tn_slice(q, 1, q_from, to - ahead), tn_slice(k, 1, from, to), tn_slice(v, 1, from, to), a);
}

static results solve(tn_ctx *ctx, const problem *p, bool inside)
{
    const int64_t  sets = p->a.kind == TN_ATTEND_BILINEAR ? 2 : 1;
    results        r = ZERO;
    tn_attend_desc a = p->a;
    tn_tensor     *whole[3];
    tn_ctx_reset(ctx);
    tn_tensor *q = operand(ctx, p->B, p->Tq, sets * p->H, p->d, 1, inside, &whole[0]);
    tn_tensor *k = operand(ctx, p->B, p->Tk, sets * p->H, p->d, 2, inside, &whole[1]);
    tn_tensor *v = operand(ctx, p->B, p->Tk, p->H, p->dv, 3, inside, &whole[2]);
    tn_tensor *w = operand(ctx, p->B, p->Tq, p->H, p->dv, 4, inside, NULL);
    if (p->state) {
        int64_t F = a.kind == TN_ATTEND_SQUARED ? p->d * (p->d + 1) / 2 : p->d * p->d;
        int64_t shape[4] = {p->B, p->H, F, p->dv + (a.row_scale == TN_ROW_SCALE_SUM)};
        a.state = tn_tensor_create(ctx, TN_REAL, 4, shape);
        attend_some(ctx, p, q, k, v, &a, 0, p->T0);
        take(&r, 0, attend_some(ctx, p, q, k, v, &a, p->T0, p->Tk));
        take(&r, 1, a.state);
        tn_tensor_destroy(a.state);
        CHECK_CTX(ctx);
        return r;
    }
    tn_record(ctx);
    for (int i = 0; i < 3; i++) tn_watch(whole[i]);
    tn_tensor *o = tn_attend(ctx, q, k, v, &a);
    take(&r, 0, o);
    CHECK(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, o, w))) == TN_OK);
    take(&r, 1, part_of(whole[0]->grad, p->Tq, sets * p->H, p->d, inside));
    take(&r, 2, part_of(whole[1]->grad, p->Tk, sets * p->H, p->d, inside));
    take(&r, 3, part_of(whole[2]->grad, p->Tk, p->H, p->dv, inside));
    CHECK_CTX(ctx);
    return r;
}

static double worst[2];                 /* in float, in double */

static void compare(const problem *p, const results *got, const results *right, tn_dtype dtype)
{
    int64_t at = 0;
    if (!CHECK_INT(got->all, right->all)) return;
    for (int which = 0; which < 4; at += right->n[which++]) {
        double e = test_frobenius(got->x + at, right->x + at, right->n[which]);
        test_raise(&worst[dtype == TN_F64], e);
        if (e <= (dtype == TN_F64 ? 1e-12 : 1e-5)) continue;
        printf("B %d Tq %d Tk %d H %d d %d dv %d kind %d form %d causal %d window %d row %d past %d: part %d is off by %g\n", (int)p->B, (int)p->Tq,
               (int)p->Tk, (int)p->H, (int)p->d, (int)p->dv, (int)p->a.kind, (int)p->a.form, !p->a.bidirectional,
                   (int)p->a.window, (int)p->a.row_scale,
               (int)p->T0, which, e);
        CHECK(false);
    }
}

/* This level's kernels on all of p; the same bits by two and three threads, and inside of larger tensors. */
static void try_level(const problem *p, const results *right, tn_dtype dtype, tn_simd simd)
{
    tn_ctx *ctx = ctx_on(tn_cpu_backend(), dtype, simd, 1);
    results first = solve(ctx, p, false);
    compare(p, &first, right, dtype);
    tn_ctx_destroy(ctx);
    for (int threads = 1; threads <= 3; threads++) {
        ctx = ctx_on(tn_cpu_backend(), dtype, simd, threads);
        results r = solve(ctx, p, threads != 3);
        if (CHECK_INT(r.all, first.all)) CHECK(memcmp(r.x, first.x, sizeof *r.x * (size_t)r.all) == 0);
        free(r.x);
        tn_ctx_destroy(ctx);
    }
    free(first.x);
}

static void try_problem(const problem *p)
{
    static const tn_simd level[] = {TN_SIMD_PLAIN, TN_SIMD_AVX2, TN_SIMD_AVX512, TN_SIMD_NEON};
    tn_ctx *ctx = ctx_on(tn_reference_backend(), TN_F64, TN_SIMD_AUTO, 1);
    results right = solve(ctx, p, false);
    for (size_t i = 0; i < sizeof level / sizeof *level; i++) {
        static const char *const name[] = {"plain", "avx2", "avx512", "neon"};
        tn_ctx *probe = ctx_on(tn_cpu_backend(), TN_F32, level[i], 1);
        bool    here = strcmp(tn_ctx_simd_name(probe), name[i]) == 0;
        tn_ctx_destroy(probe);
        if (test_leave_out(!here, "SIMD levels that this processor lacks")) continue;
        try_level(p, &right, TN_F32, level[i]);
        try_level(p, &right, TN_F64, level[i]);
    }
    free(right.x);
    tn_ctx_destroy(ctx);
}

static void finish(void)
{
    WORST("float", worst[0], 1e-5);
    WORST("double", worst[1], 2e-14);
    worst[0] = worst[1] = 0;
}

static problem make(tn_attend_kind kind, tn_attend_form form, int64_t B, int64_t Tq, int64_t Tk, int64_t H, int64_t d, int64_t dv)
{
    problem p = ZERO;
    p.B = B; p.Tq = Tq; p.Tk = Tk; p.H = H; p.d = d; p.dv = dv;
    p.a.kind = kind;
    p.a.form = form;
    p.a.row_length = 16;
    return p;
}

static bool linear_can(tn_attend_kind kind) { return kind != TN_ATTEND_SOFTMAX; }

/* Shapes that fill no tile, in all kinds and forms */
TEST(shapes)
{
    static const int64_t shape[][6] = {     /* B, Tq, Tk, H, d, dv */
        {1, 1, 1, 1, 1, 1}, {2, 5, 5, 2, 3, 4}, {1, 97, 97, 1, 8, 16}, {1, 130, 130, 2, 17, 9}, {1, 7, 150, 1, 16, 33},
        {1, 40, 3, 1, 5, 2}, {2, 1, 40, 1, 12, 64}, {1, 0, 5, 1, 4, 4}, {1, 5, 0, 1, 4, 4}, {1, 6, 6, 1, 4, 0}, {1, 3, 3, 0, 4, 4}
    };
    for (int kind = 0; kind < 3; kind++)
        for (int form = TN_ATTEND_FORM_QUADRATIC; form <= TN_ATTEND_FORM_LINEAR; form++)
            for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
                const int64_t *n = shape[s];
                problem p = make((tn_attend_kind)kind, (tn_attend_form)form, n[0], n[1], n[2], n[3], n[4], n[5]);
                if (form == TN_ATTEND_FORM_LINEAR && !linear_can(p.a.kind)) continue;
                for (int causal = 0; causal < 2; causal++) {
                    p.a.bidirectional = causal != 1;
                    try_problem(&p);
                }
            }
    finish();
}

/* One query and two, as in decoding: more keys and heads than are processed at a time, vectors that are not whole. Slopes are rounding
   errors with one key, and in squared attention that divides by the sum if d is 1. */
TEST(one_query)
{
    static const int64_t shape[][5] = {{1, 600, 5, 7, 33}, {2, 256, 4, 64, 64}, {3, 257, 1, 3, 1}, {2, 2, 6, 20, 70}};     /* B, Tk, H, d, dv */
    for (int kind = 0; kind < 3; kind++)
        for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
            for (int queries = 1; queries <= 2; queries++) {
                const int64_t *n = shape[s];
                problem p = make((tn_attend_kind)kind, TN_ATTEND_FORM_QUADRATIC, n[0], queries, n[1], n[2], n[3], n[4]);
                for (int row = TN_ROW_SCALE_NONE; row <= TN_ROW_SCALE_SUM; row++) {
                    if (row == TN_ROW_SCALE_SUM && kind != TN_ATTEND_SQUARED) continue;
                    if (test_small() && (row + queries + (int)s) % 2) continue;
                    p.a.row_scale = (tn_row_scale)row;
                    p.a.window = row % 2 ? 300 : 0;
                    p.a.bidirectional = queries == 2;
                    try_problem(&p);
                }
            }
    finish();
}

/* Windows, scales, lengths */
TEST(options)
{
    uint64_t state = 5;
    for (int kind = 0; kind < 3; kind++)
        for (int row = TN_ROW_SCALE_NONE; row <= TN_ROW_SCALE_SUM; row++) {
            problem p = make((tn_attend_kind)kind, TN_ATTEND_FORM_QUADRATIC, 1, 0, 0, 2, 0, 0);
            if (row == TN_ROW_SCALE_SUM && kind != TN_ATTEND_SQUARED) continue;
            for (int round = 0; round < (test_small() ? 1 : 4); round++) {
                p.Tq = test_random_int(&state, 1, 130);
                p.Tk = test_random_int(&state, 2, 130);          /* the softmax of one key is one, and all slopes are rounding errors */
                p.d = test_random_int(&state, 1, 20);
                p.dv = test_random_int(&state, 1, 20);
                p.a.row_scale = (tn_row_scale)row;
                p.a.bidirectional = (kind + row + round) % 2 != 0;
                p.a.window = test_random_int(&state, 0, 1) * test_random_int(&state, 1, 50);
                p.a.scale = test_random_real(&state);
                p.a.form = TN_ATTEND_FORM_QUADRATIC;
                try_problem(&p);
                p.a.window = 0;
                p.a.form = TN_ATTEND_FORM_LINEAR;
                if (linear_can(p.a.kind)) try_problem(&p);
            }
        }
    finish();
}

/* A state takes in the keys of one call after the other. */
TEST(states)
{
    static const int64_t cut[][3] = {{0, 130, 130}, {40, 130, 130}, {129, 130, 130}, {60, 60, 130}};     /* T0, Tq, Tk */
    for (int kind = 1; kind < 3; kind++)
        for (int row = TN_ROW_SCALE_NONE; row <= TN_ROW_SCALE_SUM; row++)
            for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
                problem p = make((tn_attend_kind)kind, TN_ATTEND_FORM_LINEAR, 1, cut[i][1], cut[i][2], 2, 6, 40);
                if (row == TN_ROW_SCALE_SUM && kind != TN_ATTEND_SQUARED) continue;
                p.a.row_scale = (tn_row_scale)row;
                p.state = true;
                p.T0 = cut[i][0];
                if (p.T0 < p.Tk - p.Tq) continue;
                try_problem(&p);
            }
    finish();
}

/* A state is the sum of the products of keys and values, and keys of zeros leave it as it is, to the last bit. */
TEST(states_stay)
{
    enum { D = 5, V = 3, T = 4 };
    for (int backend = 0; backend < 2; backend++)
        for (int dtype = 0; dtype < 2; dtype++)
            for (int kind = TN_ATTEND_SQUARED; kind <= TN_ATTEND_BILINEAR; kind++) {
                tn_ctx        *ctx = ctx_on(backend ? tn_cpu_backend() : tn_reference_backend(), dtype ? TN_F64 : TN_F32, TN_SIMD_AUTO, 1);
                const int64_t  sets = kind == TN_ATTEND_BILINEAR ? 2 : 1, F = kind == TN_ATTEND_SQUARED ? D * (D + 1) / 2 : D * D;
                const int64_t  shape[4] = {1, 1, F, V};
                double         k[T * 2 * D], v[T * V], now[D * D * V], then[D * D * V];
                int64_t        f = 0;
                tn_tensor     *x[3];
                tn_attend_desc a = ZERO;
                a.kind = (tn_attend_kind)kind;
                a.state = tn_tensor_create(ctx, TN_REAL, 4, shape);
                x[0] = operand(ctx, 1, T, sets, D, 1, false, NULL);
                x[1] = operand(ctx, 1, T, sets, D, 2, false, NULL);
                x[2] = operand(ctx, 1, T, 1, V, 3, false, NULL);
                tn_read(x[1], TN_F64, k, T * sets * D);
                tn_read(x[2], TN_F64, v, T * V);
                CHECK(tn_attend(ctx, x[0], x[1], x[2], &a) != NULL);
                tn_read(a.state, TN_F64, now, F * V);
                for (int p = 0; p < D; p++)
                    for (int q = kind == TN_ATTEND_SQUARED ? p : 0; q < D; q++, f++)
                        for (int e = 0; e < V; e++) {
                            double sum = 0;
                            for (int t = 0; t < T; t++) sum += k[t * sets * D + p] * k[(t * sets + sets - 1) * D + q] * v[t * V + e];
                            CHECK_NEAR(now[f * V + e], sum, dtype ? 1e-14 : 1e-5);
                        }
                for (int t = 0; t < 300; t++) {
                    static const double numbers[2 * D] = {0};
                    const int64_t       at[4] = {1, 1, sets, D}, of_v[4] = {1, 1, 1, V};
                    tn_ctx_reset(ctx);
                    tn_tensor *zero = tn_tensor_nd(ctx, TN_REAL, 4, at);
                    tn_tensor *one = tn_tensor_nd(ctx, TN_REAL, 4, of_v);
                    tn_write(zero, TN_F64, numbers, sets * D);
                    tn_write(one, TN_F64, v, V);
                    a.past = T + t;
                    CHECK(tn_attend(ctx, zero, zero, one, &a) != NULL);
                }
                tn_read(a.state, TN_F64, then, F * V);
                CHECK(memcmp(now, then, sizeof *now * (size_t)(F * V)) == 0);
                CLOSE_CTX(ctx);
            }
}

static size_t held;
static void *counting_alloc(size_t bytes, void *user) { (void)user; held += bytes; return malloc(bytes); }
static void  counting_release(void *p, size_t bytes, void *user) { (void)user; held -= bytes; free(p); }

/* The kernels' scratch is counted, and so limited. */
TEST(scratch_is_counted)
{
    const int64_t  shape[4] = {1, 64, 2, 128}, of_v[4] = {1, 64, 1, 128};
    tn_desc        desc;
    tn_ctx        *ctx = NULL;
    tn_attend_desc a = ZERO;
    a.kind = TN_ATTEND_BILINEAR;
    for (int form = TN_ATTEND_FORM_QUADRATIC; form <= TN_ATTEND_FORM_LINEAR; form++)
        for (int small = 0; small < 2; small++) {
            memset(&desc, 0, sizeof desc);
            desc.allocator.alloc = counting_alloc;
            desc.allocator.release = counting_release;
            desc.threads = 1;
            desc.max_bytes = (size_t)(small ? 1 : 128) << 19;
            desc.arena_bytes = 256 << 10;
            held = 0;
            CHECK(tn_ctx_create(&desc, &ctx, NULL) == TN_OK);
            size_t more = held - tn_ctx_memory(ctx).live;              /* the context's own, and what is for products */
            tn_tensor *q = tn_tensor_nd(ctx, TN_REAL, 4, shape);
            tn_tensor *k = q;
            tn_tensor *v = tn_tensor_nd(ctx, TN_REAL, 4, of_v);
            tn_watch(q);
            tn_watch(v);
            tn_record(ctx);
            a.form = (tn_attend_form)form;
            tn_tensor *o = tn_attend(ctx, q, k, v, &a);
            if (small) CHECK_ERROR(ctx, TN_ERR_MEMORY, "a kernel's scratch: ");
            else {
                CHECK(tn_backward(ctx, tn_sum(ctx, o)) == TN_OK);
                CHECK(held - more - tn_ctx_memory(ctx).live < 4096);    /* allocations' alignment */
                CHECK_CTX(ctx);
            }
            tn_ctx_destroy(ctx);
            CHECK(held == 0);
        }
}

/* A token that is read into a state needs no more memory than its kernel's. */
TEST(room_of_a_token)
{
    const int64_t  qk[4] = {1, 1, 2, 128}, of_v[4] = {1, 1, 1, 128}, shape[4] = {1, 1, 128 * 128, 128};
    tn_ctx        *ctx = ctx_on(tn_cpu_backend(), TN_F32, TN_SIMD_AUTO, 1);
    tn_tensor     *x = tn_tensor_nd(ctx, TN_REAL, 4, qk), *v = tn_tensor_nd(ctx, TN_REAL, 4, of_v);
    tn_attend_desc a = ZERO;
    a.kind = TN_ATTEND_BILINEAR;
    a.state = tn_tensor_create(ctx, TN_REAL, 4, shape);
    CHECK(tn_attend(ctx, x, x, v, &a) != NULL);
    CHECK(tn_ctx_memory(ctx).arena <= (size_t)5 << 20);
    CLOSE_CTX(ctx);
}

/* Few heads and many keys: the keys go in parts, and are seen by windows in parts. */
TEST(parts)
{
    for (int kind = 0; kind < 3; kind++) {
        problem p = make((tn_attend_kind)kind, TN_ATTEND_FORM_QUADRATIC, 1, test_small() ? 40 : 300, 1100, 1, 6, 5);
        try_problem(&p);
        p.a.window = 400;
        p.a.bidirectional = true;
        try_problem(&p);
    }
    finish();
}

/* Thousands of keys, or 500: both forms in float against each other in double */
TEST(long_sums)
{
    for (int kind = 1; kind < 3; kind++) {
        problem p = make((tn_attend_kind)kind, TN_ATTEND_FORM_QUADRATIC, 1, test_small() ? 500 : 4000,
                         test_small() ? 500 : 4000, 1, 16, 8);
        tn_ctx *wide = ctx_on(tn_cpu_backend(), TN_F64, TN_SIMD_AUTO, 1), *ctx = ctx_on(tn_cpu_backend(), TN_F32, TN_SIMD_AUTO, 1);
        results right = solve(wide, &p, false), r = solve(ctx, &p, false);
        compare(&p, &r, &right, TN_F32);
        free(r.x);
        p.a.form = TN_ATTEND_FORM_LINEAR;
        r = solve(ctx, &p, false);
        compare(&p, &r, &right, TN_F32);
        free(r.x);
        r = solve(wide, &p, false);
        compare(&p, &r, &right, TN_F64);
        free(r.x);
        free(right.x);
        tn_ctx_destroy(wide);
        tn_ctx_destroy(ctx);
    }
    finish();
}

/* Scores far apart, and such as are no numbers: a softmax that does not look for the largest first would overflow. */
TEST(extreme_scores)
{
    const float infinity = (float)HUGE_VAL;
    const float score[6] = {3000, -3000, 2999, -infinity, 80, 3000.5f};
    float       one = 1, v[6] = {1, 2, 3, 4, 5, 6}, o[2];
    double      right = (1 * exp(-0.5) + 3 * exp(-1.5) + 6) / (exp(-0.5) + exp(-1.5) + 1);
    int64_t     of_q[4] = {1, 1, 1, 1}, of_k[4] = {1, 6, 1, 1};
    tn_ctx     *ctx = ctx_on(tn_cpu_backend(), TN_F32, TN_SIMD_AUTO, 1);
    tn_tensor   *q = tn_tensor_nd(ctx, TN_REAL, 4, of_q), *k = tn_tensor_nd(ctx, TN_REAL, 4, of_k),
        *value = tn_tensor_nd(ctx, TN_REAL, 4, of_k);
    tn_attend_desc a = ZERO;
    a.bidirectional = true;
    a.scale = 1;
    tn_write(q, TN_F32, &one, 1);
    tn_write(k, TN_F32, score, 6);
    tn_write(value, TN_F32, v, 6);
    tn_read(tn_attend(ctx, q, k, value, &a), TN_F32, o, 1);
    CHECK_NEAR(o[0], right, 1e-5);
    tn_read(tn_attend(ctx, q, tn_slice(k, 1, 3, 4), tn_slice(value, 1, 3, 4), &a), TN_F32, o, 1);
    CHECK(o[0] == 0);                       /* a row of nothing but -infinity */
    one = -1;
    tn_write(q, TN_F32, &one, 1);
    tn_read(tn_attend(ctx, q, k, value, &a), TN_F32, o, 1);
    CHECK(o[0] != o[0]);                    /* +infinity */
    CLOSE_CTX(ctx);
}

/* Softmax attention of one head with d = dv = 1, causal: o, dq, dk and dv of the sum of o. `backend` 0: the reference. */
static results scores_of(int backend, tn_dtype dtype, int64_t T, const double *q, const double *k)
{
    static const tn_simd level[] = {TN_SIMD_AUTO, TN_SIMD_PLAIN, TN_SIMD_AVX2, TN_SIMD_AUTO};
    const int64_t  shape[4] = {1, T, 1, 1};
    tn_ctx        *ctx = ctx_on(backend ? tn_cpu_backend() : tn_reference_backend(), dtype, level[backend], 1);
    tn_tensor     *x[3];
    tn_attend_desc a = ZERO;
    results        r = ZERO;
    a.scale = 1;
    for (int i = 0; i < 3; i++) {
        x[i] = tn_tensor_nd(ctx, TN_REAL, 4, shape);
        for (int64_t t = 0; t < T; t++) {
            const double v = i == 0 ? q[t] : i == 1 ? k[t] : 1 + (double)t;
            tn_write(tn_slice(x[i], 1, t, t + 1), TN_F64, &v, 1);
        }
        tn_watch(x[i]);
    }
    tn_record(ctx);
    tn_tensor *o = tn_attend(ctx, x[0], x[1], x[2], &a);
    take(&r, 0, o);
    CHECK(tn_backward(ctx, tn_sum(ctx, o)) == TN_OK);
    for (int i = 0; i < 3; i++) take(&r, i + 1, x[i]->grad);
    CLOSE_CTX(ctx);
    return r;
}

/* A NaN score is in every row that sees it, and in no other; so it is in their gradients. */
TEST(nan_is_seen)
{
    static const int64_t length[] = {1, 6, 300};
    for (int backend = 0; backend < 4; backend++)
        for (int dtype = 0; dtype < 2; dtype++)
            for (size_t l = 0; l < 3; l++)
                for (int round = 0; round < 5; round++) {           /* all of q, q's first, q's last, k's first, k's middle */
                    const int64_t T = length[l], at = round == 2 ? T - 1 : round == 4 ? T / 2 : 0;
                    double        q[300], k[300];
                    for (int64_t t = 0; t < T; t++) {
                        q[t] = round == 0 || (round < 3 && t == at) ? (double)NAN : 1;
                        k[t] = round >= 3 && t == at ? (double)NAN : 0.01 * (double)(t % 7);
                    }
                    results r = scores_of(backend, dtype ? TN_F64 : TN_F32, T, q, k);
                    for (int64_t t = 0; t < T; t++) {
                        const bool sees = round == 0 || (round < 3 ? t == at : t >= at);
                        CHECK((r.x[t] != r.x[t]) == sees);
                        if (sees || round < 3) CHECK((r.x[T + t] != r.x[T + t]) == sees);   /* dq of a tile meets all of its keys */
                        if (round == 0 || (round < 3 && t <= at)) {
                            CHECK(r.x[2 * T + t] != r.x[2 * T + t]);
                            CHECK(r.x[3 * T + t] != r.x[3 * T + t]);
                        }
                    }
                    free(r.x);
                }
}

/* The last row's scores, as [NaN, -infinity], and the largest and the least of a precision: a score is no missing key. */
TEST(edges_of_scores)
{
    const double none = -HUGE_VAL, nan = (double)NAN;
    const double score[][2] = {{nan, none}, {none, nan}, {none, none}, {none, -3.2e38}, {-3.2e38, none}, {-3.4028234663852886e38, none},
                               {3.2e38, -3.2e38}, {none, 3.2e38}};
    const double right[] = {nan, nan, 0, 2, 1, 1, 1, 2};
    for (int backend = 0; backend < 4; backend++)
        for (int dtype = 0; dtype < 2; dtype++)
            for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
                const double one[2] = {1, 1}, wide = dtype ? 5e269 : 1;         /* -1.6e308, a score that a double just holds */
                double       k[2];
                for (int j = 0; j < 2; j++) k[j] = score[i][j] * wide;
                results r = scores_of(backend, dtype ? TN_F64 : TN_F32, 2, one, k);
                CHECK(right[i] == right[i] ? r.x[1] == right[i] : r.x[1] != r.x[1]);
                free(r.x);
            }
}

/* What no query sees adds nothing, not even where it is no number. */
TEST(unseen_keys)
{
    const int64_t T = 300;
    for (int kind = 0; kind < 3; kind++)
        for (int form = TN_ATTEND_FORM_QUADRATIC; form <= TN_ATTEND_FORM_LINEAR; form++) {
            problem p = make((tn_attend_kind)kind, (tn_attend_form)form, 1, T, T, 1, 8, 16);
            tn_ctx *ctx = ctx_on(tn_cpu_backend(), TN_F32, TN_SIMD_AUTO, 1);
            float  *x = (float *)malloc(sizeof *x * (size_t)(T * 16)), *y = (float *)malloc(sizeof *y * (size_t)(T * 16));
            if (form == TN_ATTEND_FORM_LINEAR && !linear_can(p.a.kind)) { free(x); free(y); tn_ctx_destroy(ctx); continue; }
            for (int round = 0; round < 2; round++) {
                tn_ctx_reset(ctx);
                tn_tensor *q = operand(ctx, 1, T, 2, 8, 1, false, NULL);
                tn_tensor *k = operand(ctx, 1, T, 2, 8, 2, false, NULL);
                tn_tensor *v = operand(ctx, 1, T, 1, 16, 3, false, NULL);
                if (kind != TN_ATTEND_BILINEAR) { q = tn_slice(q, 2, 0, 1); k = tn_slice(k, 2, 0, 1); }
                for (int64_t i = 0; i < (T - 200) * 16; i++) y[i] = 1e6f;
                if (round == 1) tn_write(tn_slice(v, 1, 200, T), TN_F32, y, (T - 200) * 16);
                tn_tensor *o = tn_attend(ctx, q, k, v, &p.a);
                tn_read(o, TN_F32, round ? y : x, T * 16);
            }
            CHECK(memcmp(x, y, sizeof *x * 200 * 16) == 0);
            CHECK(memcmp(x, y, sizeof *x * 201 * 16) != 0);
            CLOSE_CTX(ctx);
            free(x);
            free(y);
        }
}

/* ---- rope */

static void rope_once(tn_ctx *ctx, const int64_t n[4], const tn_rope_desc *desc, bool inside, results *r)
{
    tn_tensor *whole;
    memset(r, 0, sizeof *r);
    tn_ctx_reset(ctx);
    tn_tensor *x = operand(ctx, n[0], n[1], n[2], n[3], 1, inside, &whole);
    tn_tensor *w = operand(ctx, n[0], n[1], n[2], n[3], 2, inside, NULL);
    tn_record(ctx);
    tn_watch(whole);
    {
        tn_tensor *y = tn_rope(ctx, x, desc);
        take(r, 0, y);
        CHECK(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, w))) == TN_OK);
        take(r, 1, part_of(whole->grad, n[1], n[2], n[3], inside));
    }
    CHECK_CTX(ctx);
}

TEST(rope)
{
    static const int64_t shape[][4] = {{1, 1, 1, 1}, {2, 7, 3, 64}, {1, 70, 2, 9}, {3, 5, 1, 2}, {1, 200, 4, 128}, {1, 0, 2, 4}};
    static const tn_simd level[] = {TN_SIMD_PLAIN, TN_SIMD_AVX2, TN_SIMD_AUTO};
    double error[2] = {0, 0};
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int choice = 0; choice < 3; choice++) {
            tn_rope_desc desc = ZERO;
            tn_ctx      *wide = ctx_on(tn_reference_backend(), TN_F64, TN_SIMD_AUTO, 1);
            results      right, r[3];
            if (choice > 0 && test_leave_out(shape[s][3] == 1, "rope with a norm, of heads of one number: a kink")) {
                tn_ctx_destroy(wide);
                continue;
            }
            desc.norm = choice > 0;
            desc.no_rotation = choice == 2;
            desc.first = 1000;
            rope_once(wide, shape[s], &desc, false, &right);
            for (int l = 0; l < 3; l++)
                for (int dtype = 0; dtype < 2; dtype++) {
                    for (int threads = 1; threads <= 3; threads++) {
                        tn_ctx *ctx = ctx_on(tn_cpu_backend(), dtype ? TN_F64 : TN_F32, level[l], threads);
                        rope_once(ctx, shape[s], &desc, threads == 2, &r[threads - 1]);
                        tn_ctx_destroy(ctx);
                        CHECK(memcmp(r[threads - 1].x, r[0].x, sizeof *r[0].x * (size_t)r[0].all) == 0);
                    }
                    for (int part = 0, at = 0; part < 2; at += (int)right.n[part++]) {
                        double e = test_frobenius(r[0].x + at, right.x + at, right.n[part]);
                        test_raise(&error[dtype], e);
                    }
                    for (int i = 0; i < 3; i++) free(r[i].x);
                }
            free(right.x);
            tn_ctx_destroy(wide);
        }
    WORST("float", error[0], 1e-6);
    WORST("double", error[1], 5e-15);
}

/* In double far positions are as good as near ones. */
TEST(rope_far_away)
{
    const int64_t shape[4] = {1, 1, 1, 2};
    const double  x[2] = {1, 0};
    for (int l = 0; l < 2; l++) {
        tn_ctx      *ctx = ctx_on(tn_cpu_backend(), TN_F64, l ? TN_SIMD_PLAIN : TN_SIMD_AUTO, 1);
        tn_tensor   *t = tn_tensor_nd(ctx, TN_REAL, 4, shape);
        tn_rope_desc d = ZERO;
        double       y[2];
        d.first = 1000003;
        tn_write(t, TN_F64, x, 2);
        tn_read(tn_rope(ctx, t, &d), TN_F64, y, 2);
        CHECK_NEAR(y[0], cos(1000003.0), 4e-15);          /* as good as the sine of any system's libm */
        CHECK_NEAR(y[1], sin(1000003.0), 4e-15);
        CLOSE_CTX(ctx);
    }
}

/* ---- embed: the same bits as the reference, by any number of threads */
TEST(embed)
{
    const int64_t R = 1500, d = 77, V = 9;
    int32_t ids[1500];
    results right, r;
    uint64_t state = 3;
    for (int64_t i = 0; i < R; i++) ids[i] = (int32_t)test_random_int(&state, 0, V - 1);
    for (int dtype = 0; dtype < 2; dtype++) {
        memset(&right, 0, sizeof right);
        for (int threads = 0; threads <= 3; threads++) {                 /* 0: the reference */
            tn_ctx    *ctx = ctx_on(threads ? tn_cpu_backend() : tn_reference_backend(), dtype ? TN_F64 : TN_F32, TN_SIMD_AUTO, threads ? threads : 1);
            tn_tensor *table = tn_tensor_2d(ctx, TN_REAL, V, d), *w = operand(ctx, 1, 1, R, d, 2, false, NULL);
            float      x[9 * 77];
            uint64_t   seed = 7;
            for (int64_t i = 0; i < V * d; i++) x[i] = (float)test_random_real(&seed);
            tn_write(table, TN_F32, x, V * d);
            w = tn_reshape_2d(w, R, d);
            tn_tensor *t = tn_tensor_1d(ctx, TN_I32, R);
            tn_write(t, TN_I32, ids, R);
            memset(&r, 0, sizeof r);
            tn_record(ctx);
            tn_watch(table);
            tn_tensor *y = tn_embed(ctx, table, t);
            take(&r, 0, y);
            CHECK(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, w))) == TN_OK);
            take(&r, 1, table->grad);
            CLOSE_CTX(ctx);
            if (threads == 0) { right = r; continue; }
            if (CHECK_INT(r.all, right.all)) CHECK(memcmp(r.x, right.x, sizeof *r.x * (size_t)r.all) == 0);
            free(r.x);
        }
        free(right.x);
    }
}

/* ---- the kernels' own contract: gradients are overwritten, or added to ---- */

/* Calls of a backend with operands in memory of this test. */
typedef struct raw {
    const tn_backend *b;
    void             *state;
    tn_call           c;
    void             *memory[24];
    int               used;
} raw;

static size_t bytes_of(tn_dtype t) { return t == TN_F64 ? 8 : t == TN_F32 ? 4 : 2; }

static double number_of(const tn_view *v, int64_t i)
{
    float x;
    if (v->dtype == TN_F64) return ((const double *)v->data)[i];
    if (v->dtype == TN_F32) return (double)((const float *)v->data)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)v->data)[i] << 16;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* BF16: of numbers with few digits */
static void set_number(const tn_view *v, int64_t i, double x)
{
    const float y = (float)x;
    uint32_t    bits;
    memcpy(&bits, &y, sizeof bits);
    if (v->dtype == TN_F64) ((double *)v->data)[i] = x;
    else if (v->dtype == TN_F32) ((float *)v->data)[i] = y;
    else ((uint16_t *)v->data)[i] = (uint16_t)(bits >> 16);
}

static int64_t count_of(const tn_view *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++) n *= v->shape[i];
    return n;
}

/* [B,T,n,d] with multiples of 1/64 */
static tn_view make_heads(raw *r, tn_dtype dtype, int64_t B, int64_t T, int64_t n, int64_t d, uint64_t *seed)
{
    tn_view v = ZERO;
    v.dtype = dtype;
    v.rank = 4;
    v.shape[0] = B; v.shape[1] = T; v.shape[2] = n; v.shape[3] = d;
    v.strides[3] = 1; v.strides[2] = d; v.strides[1] = n * d; v.strides[0] = T * n * d;
    v.data = r->memory[r->used++] = calloc((size_t)count_of(&v) + 1, bytes_of(dtype));
    for (int64_t i = 0; i < count_of(&v); i++) set_number(&v, i, (double)test_random_int(seed, -64, 64) / 64);
    return v;
}

/* The forward call, and the backward one with o and the statistics. */
static bool raw_begin(raw *r, const problem *p, tn_dtype dtype, uint64_t *seed)
{
    const int64_t sets = p->a.kind == TN_ATTEND_BILINEAR ? 2 : 1, F = p->d * p->d;
    const bool    linear = p->a.form == TN_ATTEND_FORM_LINEAR, sums = p->a.row_scale == TN_ROW_SCALE_SUM;
    tn_call      *c = &r->c;
    memset(c, 0, sizeof *c);
    r->used = 0;
    c->kernel = linear ? TN_KERNEL_ATTENTION_LINEAR : TN_KERNEL_ATTENTION;
    c->in[0] = make_heads(r, dtype, p->B, p->Tq, sets * p->H, p->d, seed);
    c->in[1] = make_heads(r, dtype, p->B, p->Tk, sets * p->H, p->d, seed);
    c->in[2] = make_heads(r, dtype, p->B, p->Tk, p->H, p->dv, seed);
    c->in[3] = make_heads(r, dtype, p->B, p->Tq, p->H, p->dv, seed);
    c->in[4] = make_heads(r, dtype == TN_F64 ? TN_F64 : TN_F32, 1, p->B, p->H, p->Tq, seed);
    c->in[4].rank = 3;
    memmove(c->in[4].shape, c->in[4].shape + 1, 3 * sizeof(int64_t));
    memmove(c->in[4].strides, c->in[4].strides + 1, 3 * sizeof(int64_t));
    c->n_in = 3;
    c->out[0] = c->in[3];
    if (p->a.kind == TN_ATTEND_SOFTMAX || sums) c->out[1] = c->in[4];
    c->n_out = linear ? 4 : 3;
    c->out[c->n_out - 1].data = r->memory[r->used++] = malloc(sizeof(double) * (size_t)(2 * p->d + 3 * (p->dv + 1) + F * (p->dv + 1)));
    c->i[0] = p->a.kind;
    c->i[1] = !p->a.bidirectional;
    c->i[2] = p->a.window;
    c->f[0] = 0.5; c->f[1] = 16; c->f[2] = p->a.row_scale == TN_ROW_SCALE_DEFAULT ? TN_ROW_SCALE_LENGTH : p->a.row_scale; c->f[3] = 0.25;
    if (r->b->fn[c->kernel](r->state, c) == TN_ERR_DTYPE) return false;
    c->kernel = linear ? TN_KERNEL_ATTENTION_LINEAR_BACKWARD : TN_KERNEL_ATTENTION_BACKWARD;
    c->out[3].data = c->out[c->n_out - 1].data;
    if (!c->out[1].data) c->in[3].data = c->in[4].data = NULL;
    c->n_in = 6;
    c->n_out = 4;
    c->in[5] = make_heads(r, dtype, p->B, p->Tq, p->H, p->dv, seed);
    return true;
}

static void raw_end(raw *r) { while (r->used > 0) free(r->memory[--r->used]); }

/* One backward call. to: what the gradients hold before it, and then; only those of `wanted` are operands. */
static tn_status raw_backward(raw *r, tn_view to[3], int wanted, bool add)
{
    for (int i = 0; i < 3; i++) {
        r->c.out[i] = to[i];
        if (!(wanted >> i & 1)) r->c.out[i].data = NULL;
    }
    r->c.accumulate = add;
    return r->b->fn[r->c.kernel](r->state, &r->c);
}

/* What was there does not matter if a gradient is overwritten, be it NaN; and it is neither lost nor doubled if it is added to,
   for each of the three, whichever others are wanted. */
static void try_contract(const tn_backend *b, tn_dtype dtype, tn_gemm_precision precision, const problem *p)
{
    const double bound = dtype == TN_F64 ? 1e-14 : dtype == TN_F32 ? 2e-6 : 1e-2;
    uint64_t     seed = 7;
    tn_view      old[3], over[3], onto[3], other[3];
    char         why[TN_WHY];
    test_heap    heap = {0, 0, 0, 0, false};
    tn_desc      d = ZERO;
    raw          r = ZERO;
    d.dtype = dtype == TN_F64 ? TN_F64 : TN_F32;
    d.activations = dtype;
    d.gemm_precision = precision;
    d.threads = 1;
    d.allocator = test_heap_allocator(&heap);
    r.b = b;
    if (!CHECK_STATUS(b->open(&d, &r.state, why), TN_OK)) return;
    if (!test_leave_out(!raw_begin(&r, p, dtype, &seed), "BF16 operands that a kernel gets as F32 copies")) {
        for (int i = 0; i < 3; i++) {
            const tn_view like = r.c.in[i];
            old[i] = make_heads(&r, dtype, like.shape[0], like.shape[1], like.shape[2], like.shape[3], &seed);
            over[i] = make_heads(&r, dtype, like.shape[0], like.shape[1], like.shape[2], like.shape[3], &seed);
            onto[i] = make_heads(&r, dtype, like.shape[0], like.shape[1], like.shape[2], like.shape[3], &seed);
            other[i] = make_heads(&r, dtype, like.shape[0], like.shape[1], like.shape[2], like.shape[3], &seed);
            for (int64_t k = 0; k < count_of(&like); k++) {
                set_number(&over[i], k, NAN);
                set_number(&onto[i], k, 0);
            }
        }
        const tn_status s = raw_backward(&r, over, 7, false);
        if (!test_leave_out(dtype == TN_BF16 && s == TN_ERR_DTYPE, "BF16 operands that a kernel gets as F32 copies")
            && CHECK_STATUS(s, TN_OK)) {
            CHECK_STATUS(raw_backward(&r, onto, 7, true), TN_OK);
            for (int i = 0; i < 3; i++)
                for (int64_t k = 0; k < count_of(&over[i]); k++) CHECK(number_of(&over[i], k) == number_of(&onto[i], k));
            for (int wanted = 1; wanted < 7; wanted++) {
                for (int i = 0; i < 3; i++)
                    for (int64_t k = 0; k < count_of(&other[i]); k++) set_number(&other[i], k, NAN);
                CHECK_STATUS(raw_backward(&r, other, wanted, false), TN_OK);
                for (int i = 0; i < 3; i++)
                    for (int64_t k = 0; k < count_of(&other[i]); k++)
                        CHECK(wanted >> i & 1 ? number_of(&other[i], k) == number_of(&over[i], k) : isnan(number_of(&other[i], k)));
            }
            for (int wanted = 1; wanted < 8; wanted++) {
                for (int i = 0; i < 3; i++)
                    for (int64_t k = 0; k < count_of(&other[i]); k++) set_number(&other[i], k, number_of(&old[i], k));
                CHECK_STATUS(raw_backward(&r, other, wanted, true), TN_OK);
                for (int i = 0; i < 3; i++) {
                    double e = 0, all = 1e-300;
                    for (int64_t k = 0; k < count_of(&other[i]); k++) {
                        const double x = number_of(&other[i], k) - number_of(&old[i], k), y = wanted >> i & 1 ? number_of(&over[i], k) : 0;
                        e += (x - y) * (x - y);
                        all += x * x + y * y + number_of(&old[i], k) * number_of(&old[i], k);
                    }
                    CHECK(sqrt(e / all) <= bound);
                }
            }
        }
    }
    raw_end(&r);
    b->close(r.state);
    CHECK_INT(heap.blocks, 0);
}

TEST(gradients_are_overwritten_or_added_to)
{
    static const int64_t shape[][6] = {     /* B, Tq, Tk, H, d, dv: few heads and many, parts, tiles of BF16 */
        {1, 5, 7, 2, 3, 4}, {1, 0, 5, 1, 4, 4}, {1, 5, 0, 1, 4, 4}, {1, 6, 6, 1, 4, 0}, {2, 45, 45, 4, 5, 6}, {1, 20, 1100, 1, 6, 5},
        {1, 70, 70, 8, 16, 16}, {2, 3, 40, 4, 5, 6}
    };
    static const struct { bool cpu; tn_dtype dtype; tn_gemm_precision precision; } ways[] = {
        {false, TN_F32, TN_GEMM_F32}, {false, TN_F64, TN_GEMM_F32}, {true, TN_F32, TN_GEMM_F32}, {true, TN_F64, TN_GEMM_F32},
        {true, TN_BF16, TN_GEMM_F32}, {true, TN_BF16, TN_GEMM_BF16}
    };
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int kind = 0; kind < 3; kind++)
            for (int form = TN_ATTEND_FORM_QUADRATIC; form <= TN_ATTEND_FORM_LINEAR; form++)
                for (int causal = 0; causal < 2; causal++)
                    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
                        const int64_t *n = shape[s];
                        problem        p = make((tn_attend_kind)kind, (tn_attend_form)form, n[0], n[1], n[2], n[3], n[4], n[5]);
                        if (form == TN_ATTEND_FORM_LINEAR && !linear_can(p.a.kind)) continue;
                        if (test_small() && (causal + kind + (int)s) % 2) continue;
                        p.a.bidirectional = causal == 0;
                        p.a.row_scale = kind == TN_ATTEND_SQUARED && causal ? TN_ROW_SCALE_SUM : TN_ROW_SCALE_DEFAULT;
                        try_contract(ways[way].cpu ? tn_cpu_backend() : tn_reference_backend(), ways[way].dtype, ways[way].precision, &p);
                    }
}

TEST_MAIN(gradients_are_overwritten_or_added_to, shapes, one_query, options, states, states_stay, scratch_is_counted, room_of_a_token, parts, long_sums, extreme_scores,
          nan_is_seen, edges_of_scores, unseen_keys, rope, rope_far_away, embed)
