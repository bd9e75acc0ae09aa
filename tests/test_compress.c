/* test_compress.c: bounds on a ball, and operators with fewer terms, against dense tensors by plain loops. */
#include "golden_compress.h"
#include "model.h"

/* The numbers of an operator; in: with the constant one. */
typedef struct layer { double *p, *f[2]; int64_t out, h, in, n; bool constant; } layer;

static layer layer_of(const tn_cp *cp)
{
    layer l = {host(cp->p), {host(cp->f[0]), host(cp->f[1])}, cp->out, cp->terms, cp->in[0], cp->in[0] - cp->constant,
               cp->constant};
    return l;
}

/* |y(x)| */
static double length_at(const layer *l, const double *x)
{
    double squares = 0;
    for (int64_t o = 0; o < l->out; o++) {
        double y = 0;
        for (int64_t t = 0; t < l->h; t++) {
            double u[2];
            for (int e = 0; e < 2; e++) u[e] = dot(l->f[e] + t * l->in, x, l->n) + (l->constant ? l->f[e][t * l->in + l->n] : 0);
            y += l->p[o * l->h + t] * u[0] * u[1];
        }
        squares += y * y;
    }
    return sqrt(squares);
}

/* The largest singular value of a [m,n], by many products with A A^T. */
static double spectral(const double *a, int64_t m, int64_t n)
{
    double *x = random_doubles(m, 77), *y = doubles(n + 1), size = 0;
    for (int i = 0; i < 3000; i++) {
        for (int64_t j = 0; j < n; j++) {
            y[j] = 0;
            for (int64_t k = 0; k < m; k++) y[j] += a[k * n + j] * x[k];
        }
        size = frobenius(y, n);
        if (size == 0) return 0;
        for (int64_t k = 0; k < m; k++) x[k] = dot(a + k * n, y, n) / size;
        const double length = frobenius(x, m);
        for (int64_t k = 0; k < m; k++) x[k] /= length;
    }
    return size;
}

/* The bound of the header, from dense tensors. */
static double bound_of(const layer *l, double radius)
{
    const int64_t n = l->n, out = l->out;
    double *s = doubles(out * n * n + 1), *turned = doubles(out * n * n + 1), *linear = doubles(out * n + 1);
    double *c = doubles(out + 1);
    for (int64_t o = 0; o < out; o++)
        for (int64_t t = 0; t < l->h; t++) {
            const double  p = l->p[o * l->h + t], *w = l->f[0] + t * l->in, *v = l->f[1] + t * l->in;
            const double  w1 = l->constant ? w[n] : 0, v1 = l->constant ? v[n] : 0;
            c[o] += p * w1 * v1;
            for (int64_t i = 0; i < n; i++) {
                linear[o * n + i] += p * (w[i] * v1 + v[i] * w1);
                for (int64_t j = 0; j < n; j++) s[(o * n + i) * n + j] += p * (w[i] * v[j] + v[i] * w[j]) / 2;
            }
        }
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < n; j++) turned[(i * out + o) * n + j] = s[(o * n + i) * n + j];
    const double q[2] = {spectral(s, out, n * n), spectral(turned, n, out * n)};
    return (q[1] < q[0] ? q[1] : q[0]) * radius * radius + spectral(linear, out, n) * radius + frobenius(c, out);
}

static void point_of(uint64_t *seed, int64_t n, double length, double *x)
{
    for (int64_t i = 0; i < n; i++) x[i] = test_random_real(seed);
    const double size = frobenius(x, n);
    for (int64_t i = 0; i < n; i++) x[i] *= size > 0 ? length / size : 0;
}

TEST(bounds_on_a_ball)
{
    static const int64_t shapes[][4] = {{3, 5, 4, 0}, {1, 4, 6, 0}, {5, 2, 3, 1}, {2, 7, 1, 1}, {1, 1, 1, 0}, {7, 9, 3, 0},
                                        {3, 4, 9, 1}, {2, 0, 3, 0}, {4, 3, 5, 1}};
    double   off = 0, beyond = 0, wrong = 0, loose = 0;
    uint64_t seed = 3;
    for (int round = 0; round < 18; round++) {
        const int64_t *shape = shapes[round / 2], n = shape[2];
        const bool     single = round % 2, constant = shape[3] != 0;
        const double   radius = round == 4 ? 0 : round == 6 ? 1e-120 : round == 10 ? 1e40 : 1.7;
        world          w;
        REQUIRE(open_world(&w, single ? TN_F32 : TN_F64, 30 + (uint64_t)round));
        tn_cp *cp = any_cp(&w, 2, shape[0], shape[1], n + constant, constant);
        tn_ball_bound b;
        CHECK_STATUS(tn_cp_ball_bound(cp, radius, &b), TN_OK);
        REQUIRE(b.input);
        const layer  l = layer_of(cp);
        const double want = bound_of(&l, radius);
        double *x = host(b.input), at[16];
        test_raise(&off, want > 0 ? fabs(b.bound - want) / want : b.bound);
        test_raise(&wrong, fabs(b.reached - length_at(&l, x)) / (1e-300 + b.bound));
        test_raise(&wrong, fabs(frobenius(x, n) - radius) / (1e-300 + radius) * (shape[1] > 0));
        CHECK(b.reached <= b.bound);
        if (shape[0] == 1 && !constant) test_raise(&loose, 1 - b.reached / b.bound);        /* one form: both are |l| radius^2 */
        for (int i = 0; i < 200; i++) {
            point_of(&seed, n, radius * (i % 2 ? 1 : 0.5), at);
            test_raise(&beyond, length_at(&l, at) / (b.bound + 1e-300) - 1);
        }
        tn_ball_bound_destroy(&b);
        tn_cp_destroy(cp);
        close_world(&w);
    }
    WORST("bounds against dense tensors", off, 1e-6);
    WORST("what is reached against the layer", wrong, 1e-6);
    WORST("what is reached of the bound of one form", loose, 1e-9);
    WORST("random inputs beyond their bound", beyond, 0);
}

/* The layer with p minus the p of another one, which has some of its terms. */
static layer difference(const layer *l, const layer *few, const int32_t *kept)
{
    layer d = *l;
    d.p = doubles(l->out * l->h + 1);
    for (int64_t i = 0; i < l->out * l->h; i++) d.p[i] = -l->p[i];
    for (int64_t t = 0; t < few->h; t++) for (int64_t o = 0; o < l->out; o++) d.p[o * l->h + kept[t]] += few->p[o * few->h + t];
    return d;
}

static int32_t *places_of(const tn_tensor *t)
{
    double  *v = host(t);
    int32_t *to = (int32_t *)(void *)doubles(tn_tensor_count(t) + 1);
    for (int64_t i = 0; i < tn_tensor_count(t); i++) to[i] = (int32_t)v[i];
    return to;
}

/* Steps of any size in any direction that make |y| on the sphere larger. */
static double climb(const layer *l, double radius, uint64_t *seed)
{
    double x[16], to[16], most = 0;
    for (int start = 0; start < 4; start++) {
        point_of(seed, l->n, radius, x);
        double now = length_at(l, x);
        for (double size = 1; size > 1e-4; size *= 0.8)
            for (int tries = 0; tries < 40; tries++) {
                for (int64_t i = 0; i < l->n; i++) to[i] = x[i] + radius * size * test_random_real(seed);
                const double length = frobenius(to, l->n);
                for (int64_t i = 0; i < l->n; i++) to[i] *= radius / length;
                const double then = length_at(l, to);
                if (!(then > now)) continue;
                now = then;
                memcpy(x, to, (size_t)l->n * sizeof *x);
            }
        if (now > most) most = now;
    }
    return most;
}

TEST(fewer_terms_within_a_bound)
{
    double   off = 0, beyond = 0, normal = 0, found = 0;
    uint64_t seed = 8;
    int      less = 0;
    for (int round = 0; round < 12; round++) {
        const bool    single = round % 2, constant = round % 3 == 0;
        const int64_t out = 1 + round % 4, h = 6 + round, n = 3 + round % 5;
        const double  radius = sqrt((double)n);
        world         w;
        REQUIRE(open_world(&w, single ? TN_F32 : TN_F64, 60 + (uint64_t)round));
        tn_cp        *cp = any_cp(&w, 2, out, h, n + constant, constant);
        const layer   l = layer_of(cp);
        const double  whole = bound_of(&l, radius);
        for (int k = 0; k < 3; k++) {
            tn_compress_desc d = ZERO;
            tn_compression   c, more;
            d.radius = radius;
            d.bound = whole * (k == 0 ? 0.02 : k == 1 ? 0.3 : 1.5);
            CHECK_STATUS(tn_cp_compress(cp, &d, &c), TN_OK);
            REQUIRE(c.cp && c.kept && c.change.input);
            const layer   few = layer_of(c.cp);
            const int32_t *kept = places_of(c.kept);
            const layer   change = difference(&l, &few, kept);
            const double  want = bound_of(&change, radius);
            CHECK(c.change.bound <= d.bound && c.cp->terms <= h && c.exact == h && (k < 2 || c.cp->terms == 0));
            less += c.cp->terms < h;
            if (want > 1e-6 * whole) test_raise(&off, fabs(c.change.bound - want) / want);
            test_raise(&beyond, climb(&change, radius, &seed) - c.change.bound);
            if (want > 1e-6 * whole) test_raise(&found, climb(&change, radius, &seed) / c.change.reached - 1);
            for (int64_t t = 0; t < few.h; t++)
                for (int e = 0; e < 2; e++)
                    CHECK(!memcmp(few.f[e] + t * l.in, l.f[e] + kept[t] * l.in, (size_t)l.in * sizeof(double)));
            for (int64_t t = 0; t < few.h && !constant && !single; t++)      /* the best p: the change is orthogonal to T_t */
                for (int64_t o = 0; o < out; o++) {
                    double sum = 0;
                    for (int64_t s = 0; s < h; s++)
                        for (int e = 0; e < 2; e++)
                            sum += change.p[o * h + s] / 2 * dot(l.f[0] + s * n, few.f[e] + t * n, n)
                                 * dot(l.f[1] + s * n, few.f[1 - e] + t * n, n);
                    test_raise(&normal, fabs(sum) / whole);
                }
            if (c.cp->terms > 0) {                                          /* one term less exceeds the bound */
                d.terms = c.cp->terms - 1;
                if (d.terms > 0) {
                    CHECK_STATUS(tn_cp_compress(cp, &d, &more), TN_OK);
                    CHECK(more.change.bound > d.bound && more.cp->terms == d.terms);
                    tn_compression_destroy(&more);
                }
            }
            tn_compression_destroy(&c);
        }
        tn_cp_destroy(cp);
        close_world(&w);
    }
    WORST("bounds of changes against dense tensors", off, 1e-6);
    WORST("inputs beyond the bound of a change", beyond, 0);
    WORST("refitted outputs against the normal equations", normal, 1e-6);
    WORST("climbs against what was reached", found, 1e-6);
    CHECK(less > 20);
}

/* Zero terms, and terms parallel to another one, whose merging rounds nothing: they go without a change of any bit. */
TEST(merged_terms_change_nothing)
{
    for (int single = 0; single < 2; single++) {
        enum { OUT = 2, H = 9, N = 3 };
        double p[OUT * H], f[2][H * N];
        world  w;
        REQUIRE(open_world(&w, single ? TN_F32 : TN_F64, 4));
        for (int t = 0; t < H; t++) {
            for (int o = 0; o < OUT; o++) p[o * H + t] = (double)((5 * t + 3 * o) % 7 - 3) / 8 + 0.0625;
            for (int i = 0; i < N; i++) {
                f[0][t * N + i] = (double)((3 * t + i) % 11 - 5) / 4 + 0.125;
                f[1][t * N + i] = (double)((7 * t + 2 * i) % 13 - 6) / 4 + 0.125;
            }
        }
        for (int i = 0; i < N; i++) {
            f[0][4 * N + i] = -2 * f[0][1 * N + i];             /* 4 is 1 with other lengths */
            f[1][4 * N + i] = 3 * f[1][1 * N + i];
            f[0][6 * N + i] = f[1][2 * N + i];                  /* 6 is 2 with its inputs exchanged */
            f[1][6 * N + i] = f[0][2 * N + i];
            f[1][5 * N + i] = 0;
        }
        p[0 * H + 7] = p[1 * H + 7] = 0;
        tn_tensor *g[2] = {matrix(&w, H, N, f[0]), matrix(&w, H, N, f[1])};
        tn_cp     *cp = tn_cp_create(w.ctx, 2, matrix(&w, OUT, H, p), g, TN_CP_INPUT_PLAIN);
        tn_compress_desc d = ZERO;
        tn_compression   c;
        d.radius = 1.3;
        CHECK_STATUS(tn_cp_compress(cp, &d, &c), TN_OK);
        REQUIRE(c.cp && c.kept);
        const double *kept = host(c.kept);
        static const double want[5] = {0, 1, 2, 3, 8};
        REQUIRE(CHECK(c.cp->terms == 5 && c.exact == 5));
        for (int t = 0; t < 5; t++) CHECK(kept[t] == want[t]);
        CHECK(c.change.bound == 0 && c.change.reached == 0);
        tn_tensor *a = tn_cp_dense_symmetric(cp), *b = tn_cp_dense_symmetric(c.cp);
        CHECK(!memcmp(host(a), host(b), sizeof(double) * OUT * N * N));     /* sums of few bits are exact */
        tn_compression_destroy(&c);
        static const double other[3] = {0.1, 0.2, 0.3};         /* no longer parallel */
        CHECK_STATUS(tn_write(tn_slice(cp->f[0], 0, 4, 5), TN_F64, other, 3), TN_OK);
        CHECK_STATUS(tn_cp_compress(cp, &d, &c), TN_OK);
        CHECK(c.cp && c.cp->terms == 6 && c.change.bound == 0);
        tn_compression_destroy(&c);
        f[0][4 * N + N - 1] += 1;                               /* parallel but for the constant one */
        tn_tensor *rows[2] = {matrix(&w, H, N, f[0]), matrix(&w, H, N, f[1])};
        tn_cp     *biased = tn_cp_create(w.ctx, 2, matrix(&w, OUT, H, p), rows, TN_CP_INPUT_CONSTANT);
        CHECK_STATUS(tn_cp_compress(biased, &d, &c), TN_OK);
        CHECK(c.cp && c.cp->terms == 6 && c.change.bound == 0);
        tn_compression_destroy(&c);
        tn_cp_destroy(biased);
        f[0][4 * N + N - 1] -= 1;
        for (int o = 0; o < OUT && !single; o++) {              /* 6 would add 2^-500 1e-200 to 2, which is 0 */
            p[o * H + 6] = 1e-200;
            for (int i = 0; i < N; i++) f[0][2 * N + i] = 1, f[0][6 * N + i] = 0x1p-500, f[1][6 * N + i] = f[1][2 * N + i];
        }
        if (!single) {
            CHECK_STATUS(tn_write(cp->p, TN_F64, p, OUT * H), TN_OK);
            for (int e = 0; e < 2; e++) CHECK_STATUS(tn_write(cp->f[e], TN_F64, f[e], H * N), TN_OK);
            CHECK_STATUS(tn_cp_compress(cp, &d, &c), TN_OK);
            CHECK(c.cp && c.cp->terms == 6 && c.change.bound == 0);
            tn_compression_destroy(&c);
        }
        tn_tensor_destroy(a);
        tn_tensor_destroy(b);
        tn_cp_destroy(cp);
        close_world(&w);
    }
}

/* A model without norms, some of whose hidden units are zero or parallel to others, and the shorter one: the same polynomial. */
TEST(shorter_models_are_the_same)
{
    enum { HIDDEN = 8 };
    tn_transformer_desc d = tiny();
    tn_transformer      a, b;
    tn_compress_desc    how = ZERO;
    tn_compression      c;
    world               w;
    d.no_norm = true;
    d.attention = TN_ATTENTION_BILINEAR;
    d.layers = 1;
    d.mlp = TN_MLP_BILINEAR;
    d.mlp_order = 2;
    d.hidden = HIDDEN;
    REQUIRE(open_world(&w, TN_F32, 12));
    CHECK_STATUS(tn_transformer_init(w.params, "a", &d, &a), TN_OK);
    REQUIRE(stir(w.params, 3, 0.5));
    const int64_t n = d.dim;
    double       *p = host(a.blocks[0].mlp.p), *f = host(a.blocks[0].mlp.w), *g = f + HIDDEN * n;
    for (int64_t i = 0; i < n * HIDDEN; i++) p[i] = floor(p[i] * 64) / 64;
    for (int64_t i = 0; i < n; i++) {
        f[3 * n + i] = 2 * f[1 * n + i];
        g[3 * n + i] = -g[1 * n + i];
        f[6 * n + i] = g[2 * n + i];
        g[6 * n + i] = f[2 * n + i];
        p[i * HIDDEN + 5] = 0;
    }
    CHECK_STATUS(tn_write(a.blocks[0].mlp.p, TN_F64, p, n * HIDDEN), TN_OK);
    CHECK_STATUS(tn_write(a.blocks[0].mlp.w, TN_F64, f, 2 * HIDDEN * n), TN_OK);
    tn_cp *cp = tn_circuit_mlp(w.ctx, &a, 0);
    CHECK_STATUS(tn_cp_compress(cp, &how, &c), TN_OK);
    REQUIRE(CHECK(c.cp && c.cp->terms == 5));
    d.hidden = 5;
    CHECK_STATUS(tn_transformer_init(w.params, "b", &d, &b), TN_OK);
    for (int64_t i = 0; i < tn_params_count(w.params); i++) {
        tn_param *from = tn_params_at(w.params, i);
        char      name[96];
        if (from->name[0] != 'a') continue;
        snprintf(name, sizeof name, "b%s", from->name + 1);
        tn_param *to = tn_params_find(w.params, name);
        if (tn_tensor_count(to->value) == tn_tensor_count(from->value)) CHECK_STATUS(tn_assign(to->value, from->value), TN_OK);
    }
    CHECK_STATUS(tn_assign(b.blocks[0].mlp.p, c.cp->p), TN_OK);
    for (int e = 0; e < 2; e++) {
        const int64_t shape[2] = {5, n};
        tn_tensor    *half = tn_reshape(tn_slice(b.blocks[0].mlp.w, 0, e, e + 1), 2, shape);
        CHECK_STATUS(tn_assign(half, c.cp->f[e]), TN_OK);
    }
    for (int differ = 0; differ < 2; differ++) {
        tn_transformer_same_result r;
        static const double other[5] = {1, 2, 3, 4, 5};
        if (differ) CHECK_STATUS(tn_write(tn_slice(b.blocks[0].mlp.p, 0, 0, 1), TN_F64, other, 5), TN_OK);
        CHECK_STATUS(tn_transformer_same(&a, &b, NULL, &r), TN_OK);
        CHECK(r.equal == !differ);
        tn_transformer_same_destroy(&r);
    }
    tn_compression_destroy(&c);
    tn_cp_destroy(cp);
    close_world(&w);
}

/* Pruning keeps the largest terms as they are. */
TEST(pruned_terms)
{
    world            w;
    tn_compress_desc d = ZERO;
    tn_compression   c;
    REQUIRE(open_world(&w, TN_F64, 5));
    tn_cp      *cp = any_cp(&w, 2, 3, 9, 4, false);
    const layer l = layer_of(cp);
    d.radius = 2;
    d.terms = 4;
    d.plain = true;
    CHECK_STATUS(tn_cp_compress(cp, &d, &c), TN_OK);
    REQUIRE(c.cp && c.cp->terms == 4);
    const layer    few = layer_of(c.cp);
    const int32_t *kept = places_of(c.kept);
    double size[9], least = HUGE_VAL;
    bool   is[9] = {false};
    for (int t = 0; t < 9; t++) {
        size[t] = frobenius(l.f[0] + t * 4, 4) * frobenius(l.f[1] + t * 4, 4)
                * sqrt(l.p[t] * l.p[t] + l.p[9 + t] * l.p[9 + t] + l.p[18 + t] * l.p[18 + t]);
    }
    for (int k = 0; k < 4; k++) {
        is[kept[k]] = true;
        if (size[kept[k]] < least) least = size[kept[k]];
        for (int o = 0; o < 3; o++) CHECK(few.p[o * 4 + k] == l.p[o * 9 + kept[k]]);
    }
    for (int t = 0; t < 9; t++) CHECK(is[t] || size[t] <= least);
    const layer change = difference(&l, &few, kept);
    CHECK_NEAR(c.change.bound, bound_of(&change, 2), 1e-8 * c.change.bound);
    tn_compression_destroy(&c);
    tn_cp_destroy(cp);
    close_world(&w);
}

/* Against tools/golden_compress.py */
TEST(golden_bounds)
{
    double worst = 0;
    world  w;
    REQUIRE(open_world(&w, TN_F64, 1));
    const int64_t out = GOLDEN_COMPRESS_OUT, h = GOLDEN_COMPRESS_TERMS, n = GOLDEN_COMPRESS_IN;
    double *v[3];
    for (int k = 0, at = 0; k < 3; k++) {
        const int64_t count = k ? h * n : out * h;
        v[k] = doubles(count);
        for (int64_t i = 0; i < count; i++, at++) v[k][i] = ((37 * at + at * at / 5) % 23 - 11) / 8.0;
    }
    tn_tensor *g[2] = {matrix(&w, h, n, v[1]), matrix(&w, h, n, v[2])};
    tn_cp     *cp = tn_cp_create(w.ctx, 2, matrix(&w, out, h, v[0]), g, TN_CP_INPUT_PLAIN);
    for (int64_t terms = 1; terms < h; terms++) {
        tn_compress_desc d = ZERO;
        tn_compression   c;
        d.radius = sqrt((double)n);
        d.terms = terms;
        CHECK_STATUS(tn_cp_compress(cp, &d, &c), TN_OK);
        test_raise(&worst, fabs(c.change.bound / golden_compress[terms] - 1));
        tn_compression_destroy(&c);
    }
    tn_ball_bound b;
    CHECK_STATUS(tn_cp_ball_bound(cp, sqrt((double)n), &b), TN_OK);
    test_raise(&worst, fabs(b.bound / golden_compress[0] - 1));
    tn_ball_bound_destroy(&b);
    tn_cp_destroy(cp);
    close_world(&w);
    WORST("bounds against NumPy", worst, 1e-8);
}

TEST(bad_compressions)
{
    world            w;
    tn_ball_bound    b;
    tn_compression   c;
    tn_compress_desc d = ZERO;
    static const double infinite[3] = {1, HUGE_VAL, 2}, large[3] = {1, 1e300, 2};
    REQUIRE(open_world(&w, TN_F64, 2));
    tn_cp *cp = any_cp(&w, 2, 2, 3, 4, false), *cubic = any_cp(&w, 3, 2, 3, 4, false);
    CHECK_STATUS(tn_cp_ball_bound(NULL, 1, &b), TN_ERR_ARG);
    FAILS(w.ctx, tn_cp_ball_bound(cp, 1, NULL), TN_ERR_ARG, "cp_ball_bound: out is NULL");
    FAILS(w.ctx, tn_cp_ball_bound(cp, -1, &b), TN_ERR_ARG, "cp_ball_bound: radius is -1, expected a finite number >= 0");
    FAILS(w.ctx, tn_cp_ball_bound(cp, NAN, &b), TN_ERR_ARG, "cp_ball_bound: radius is nan");
    FAILS(w.ctx, tn_cp_ball_bound(cubic, 1, &b), TN_ERR_SHAPE, "cp_ball_bound");
    FAILS(w.ctx, tn_cp_compress(cp, NULL, &c), TN_ERR_ARG, "cp_compress: desc is NULL");
    FAILS(w.ctx, tn_cp_compress(cp, &d, NULL), TN_ERR_ARG, "cp_compress: out is NULL");
    d.bound = -1;
    FAILS(w.ctx, tn_cp_compress(cp, &d, &c), TN_ERR_ARG, "cp_compress: bound is -1");
    d.bound = 1;
    d.terms = -3;
    FAILS(w.ctx, tn_cp_compress(cp, &d, &c), TN_ERR_ARG, "cp_compress: terms is -3");
    d.terms = 0;
    CHECK_STATUS(tn_write(tn_slice(cp->p, 0, 0, 1), TN_F64, infinite, 3), TN_OK);
    FAILS(w.ctx, tn_cp_compress(cp, &d, &c), TN_ERR_NONFINITE, "cp_compress: p, [2,3], has NaN or infinity");
    CHECK(!c.cp && !c.kept && !c.change.input);
    CHECK_STATUS(tn_write(tn_slice(cp->p, 0, 0, 1), TN_F64, large, 3), TN_OK);
    CHECK_STATUS(tn_cp_ball_bound(cp, 1e100, &b), TN_OK);                   /* beyond all numbers */
    CHECK(b.bound == HUGE_VAL);
    tn_ball_bound_destroy(&b);
    tn_cp_destroy(cp);
    tn_cp_destroy(cubic);
    close_world(&w);
}

/* Products of factors near 1 may be so small that their squares are 0, and weights times long inputs infinite. */
TEST(bounds_of_extreme_numbers)
{
    static const double p[2] = {1, 1}, w[2] = {1e150, 1e-50}, v[2] = {1e-50, 1e150}, zero[2] = {0, 0};
    world         w0;
    tn_ball_bound b;
    REQUIRE(open_world(&w0, TN_F64, 3));
    tn_tensor *f[2] = {matrix(&w0, 2, 1, w), matrix(&w0, 2, 1, v)};
    tn_cp     *cp = tn_cp_create(w0.ctx, 2, matrix(&w0, 1, 2, p), f, TN_CP_INPUT_PLAIN);
    CHECK_STATUS(tn_cp_ball_bound(cp, 1, &b), TN_OK);           /* 2e100 x x */
    CHECK(b.bound >= 2e100 && b.bound < HUGE_VAL);
    CHECK(b.reached >= 1.9e100 && b.reached <= b.bound);
    tn_ball_bound_destroy(&b);
    CHECK_STATUS(tn_cp_ball_bound(cp, 1e200, &b), TN_OK);
    CHECK(b.bound == HUGE_VAL && b.reached >= 0);
    tn_ball_bound_destroy(&b);
    CHECK_STATUS(tn_write(cp->f[0], TN_F64, zero, 2), TN_OK);
    CHECK_STATUS(tn_cp_ball_bound(cp, 1, &b), TN_OK);
    CHECK(b.bound == 0 && b.reached == 0);
    tn_ball_bound_destroy(&b);
    tn_cp_destroy(cp);
    close_world(&w0);
}

TEST_MAIN(bounds_on_a_ball, bounds_of_extreme_numbers, fewer_terms_within_a_bound, merged_terms_change_nothing,
          shorter_models_are_the_same, pruned_terms, golden_bounds, bad_compressions)
