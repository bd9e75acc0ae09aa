/* test_radius.c: how far an input must move to change the answer, against a search that knows nothing but the function. */
#include "kit.h"

enum { MOST = 64 };                     /* inputs, and outputs */

/* Outputs of a bilinear operator at x, by plain loops. */
static void outputs_of(const double *p, const double *w, const double *v, int64_t out, int64_t h, int64_t n, bool constant,
                       const double *x, double *y)
{
    const int64_t in = n + constant;
    for (int64_t o = 0; o < out; o++) y[o] = 0;
    for (int64_t t = 0; t < h; t++) {
        double a = constant ? w[t * in + n] : 0, b = constant ? v[t * in + n] : 0;
        a += dot(w + t * in, x, n);
        b += dot(v + t * in, x, n);
        for (int64_t o = 0; o < out; o++) y[o] += p[o * h + t] * a * b;
    }
}

/* The lead of a over b along x + t u is c0 + c1 t + c2 t^2. Its first zero with t > 0; without one a number above NONE, the
   less the nearer the quadratic is to having one. */
#define NONE 1e30
typedef struct lead { const double *p, *w, *v, *x; int64_t out, h, n; bool constant; int64_t a, b; } lead;

static double lead_at(const lead *l, const double *u, double t)
{
    double x[MOST], y[MOST];
    for (int64_t i = 0; i < l->n; i++) x[i] = l->x[i] + (u ? t * u[i] : 0);
    outputs_of(l->p, l->w, l->v, l->out, l->h, l->n, l->constant, x, y);
    return y[l->a] - y[l->b];
}

static double first_zero(const lead *l, const double *direction)
{
    double u[MOST], size = frobenius(direction, l->n);
    for (int64_t i = 0; i < l->n; i++) u[i] = direction[i] / size;
    const double c0 = lead_at(l, u, 0), up = lead_at(l, u, 1), down = lead_at(l, u, -1), c1 = (up - down) / 2,
                 c2 = (up + down) / 2 - c0, root = c1 * c1 - 4 * c2 * c0;
    if (root < 0) return NONE * (1 - root);
    const double t = c1 <= 0 ? 2 * c0 / (-c1 + sqrt(root)) : c2 < 0 ? (-c1 - sqrt(root)) / (2 * c2) : HUGE_VAL;
    return t > 0 && t < NONE ? t : NONE * (2 + fabs(c1) + fabs(c2));
}

/* The nearest zero by trial: from many directions, steps of all sizes that make the way shorter. */
static double nearest_by_trial(const lead *l, uint64_t *seed)
{
    double best = HUGE_VAL, u[MOST], trial[MOST];
    for (int start = 0; start < 12; start++) {
        for (int64_t i = 0; i < l->n; i++) u[i] = test_random_real(seed);
        double now = first_zero(l, u);
        for (double size = 1; size > 1e-8; size *= 0.7)
            for (int tries = 0; tries < 8 * (int)l->n; tries++) {
                const double length = frobenius(u, l->n);
                for (int64_t i = 0; i < l->n; i++) trial[i] = u[i] / length + size * test_random_real(seed);
                const double next = first_zero(l, trial);
                if (!(next < now)) continue;
                now = next;
                memcpy(u, trial, sizeof u);
            }
        if (now < best) best = now;
    }
    return best < NONE ? best : HUGE_VAL;
}

TEST(radii_of_quadratics)
{
    const int rounds = test_small() ? 60 : 1000;
    double    worst = 0, off = 0;
    uint64_t  seed = 5;
    int       infinite = 0, touching = 0;
    world     w;
    REQUIRE(open_world(&w, TN_F64, 3));
    for (int round = 0; round < rounds; round++) {
        const int64_t n = 1 + round % 4, h = round % 3 == 0 ? 1 : 1 + round / 4 % 5, out = 2 + round % 2;
        tn_cp *cp = any_cp(&w, 2, out, h, n + (round % 2), round % 2);
        double *p = host(cp->p), *f0 = host(cp->f[0]), *f1 = host(cp->f[1]), x[4], y[4];
        for (int64_t i = 0; i < n; i++) x[i] = round % 5 == 0 ? 0 : 2 * test_random_real(&seed);    /* 0: the hard case */
        tn_radius r;
        CHECK_STATUS(tn_cp_radius(1, (const tn_cp *const *)&cp, matrix(&w, 1, n, x), &r), TN_OK);
        REQUIRE(r.radius && r.answer && r.rival && r.nearest);
        double *radius = host(r.radius), *nearest = host(r.nearest), *answer = host(r.answer), *rival = host(r.rival);
        outputs_of(p, f0, f1, out, h, n, cp->constant, x, y);
        lead l = {p, f0, f1, x, out, h, n, cp->constant, (int64_t)answer[0], 0};
        double least = HUGE_VAL;
        for (l.b = 0; l.b < out; l.b++) {
            CHECK(y[l.b] <= y[l.a]);
            if (l.b == l.a) continue;
            const double want = y[l.a] > y[l.b] ? nearest_by_trial(&l, &seed) : 0;
            if (radius[l.b] < least) least = radius[l.b];
            const double size = frobenius(x, n);
            if (!cp->constant && fabs(radius[l.b] - size) <= 1e-6 * size) {      /* a definite form touches 0 at x = 0 */
                touching++;
                CHECK(!(want < size * (1 - 1e-6)));
            } else if (want < HUGE_VAL) test_raise(&off, fabs(radius[l.b] - want) / fmax(1e-3, want));
            else infinite += CHECK(!(radius[l.b] < 1e6));
        }
        CHECK_NEAR(radius[l.a], 0, 0);
        if (least < HUGE_VAL) {                                  /* the point is where the two are equal */
            double d[4];
            l.b = (int64_t)rival[0];
            for (int64_t i = 0; i < n; i++) d[i] = nearest[i] - x[i];
            CHECK_NEAR(radius[l.b], least, 0);
            test_raise(&worst, fabs(frobenius(d, n) - least) / fmax(1, least));
            outputs_of(p, f0, f1, out, h, n, cp->constant, nearest, y);
            test_raise(&worst, fabs(y[l.a] - y[l.b]) / fmax(1, fabs(y[l.a])));
        } else CHECK(nearest[0] != nearest[0]);
        tn_radius_destroy(&r);
        tn_cp_destroy(cp);
        fresh(&w);
    }
    WORST("radius against a search", off, 1e-10);
    WORST("nearest inputs", worst, 1e-10);
    CHECK(touching > 0 && (infinite > 0 || test_small()));
    close_world(&w);
}

/* More inputs than twice the terms, and fewer: no direction has a shorter way, and the nearest input is where it should be. */
TEST(radii_of_layers)
{
    static const int64_t shapes[][4] = {{37, 7, 3, 1}, {9, 40, 4, 0}, {6, 3, 2, 1}, {1, 1, 2, 1}, {12, 5, 5, 0}, {3, 0, 2, 1}};
    uint64_t seed = 11;
    for (int pass = 0; pass < 12; pass++) {
        const int64_t *shape = shapes[pass / 2], n = shape[0], h = shape[1], out = shape[2], rows = 3;
        const bool     single = pass % 2, constant = shape[3] != 0;
        const double   tol = single ? 1e-5 : 1e-11;
        world          w;
        REQUIRE(open_world(&w, single ? TN_F32 : TN_F64, 20 + (uint64_t)pass));
        tn_cp     *cp = any_cp(&w, 2, out, h, n + constant, constant);
        tn_tensor *x = any_matrix(&w, rows, n);
        tn_radius  r;
        CHECK_STATUS(tn_cp_radius(1, (const tn_cp *const *)&cp, x, &r), TN_OK);
        REQUIRE(r.radius && r.nearest);
        double *p = host(cp->p), *f0 = host(cp->f[0]), *f1 = host(cp->f[1]), *at = host(x), *radius = host(r.radius);
        double *nearest = host(r.nearest), *answer = host(r.answer), *rival = host(r.rival), y[MOST], d[MOST];
        for (int64_t row = 0; row < rows; row++) {
            const int64_t a = (int64_t)answer[row], b = (int64_t)rival[row];
            const double  least = radius[row * out + b];
            lead l = {p, f0, f1, at + row * n, out, h, n, constant, a, 0};
            for (l.b = 0; l.b < out; l.b++)
                for (int tries = 0; tries < 200 && l.b != a; tries++) {
                    for (int64_t i = 0; i < n; i++) d[i] = test_random_real(&seed);
                    CHECK(first_zero(&l, d) >= radius[row * out + l.b] * (1 - tol));
                }
            if (!(least < HUGE_VAL)) continue;
            outputs_of(p, f0, f1, out, h, n, constant, nearest + row * n, y);
            for (int64_t i = 0; i < n; i++) d[i] = nearest[row * n + i] - at[row * n + i];
            CHECK_NEAR(frobenius(d, n), least, tol * (1 + least));
            CHECK_NEAR(y[a] - y[b], 0, tol * (1 + fabs(y[a])) * 10);
            for (int64_t o = 0; o < out; o++) CHECK(o == a || radius[row * out + o] >= least);
        }
        tn_radius_destroy(&r);
        tn_cp_destroy(cp);
        close_world(&w);
    }
}

/* One output is compared with 0: y = x0 x1 and x = (3,4) is 3 away from its sign's change; y = x0^2 + 1 never changes it. */
TEST(radius_of_one_output)
{
    const double one = 1, x[4] = {3, 4, -2, 5}, e0[3] = {1, 0, 0}, e1[3] = {0, 1, 0}, c[3] = {0, 0, 1};
    world        w;
    REQUIRE(open_world(&w, TN_F64, 1));
    tn_tensor *f[2] = {matrix(&w, 1, 3, e0), matrix(&w, 1, 3, e1)}, *at = matrix(&w, 2, 2, x);
    tn_cp     *cp = tn_cp_create(w.ctx, 2, matrix(&w, 1, 1, &one), f, TN_CP_INPUT_CONSTANT);
    tn_radius  r;
    CHECK_STATUS(tn_cp_radius(1, (const tn_cp *const *)&cp, at, &r), TN_OK);
    double *radius = host(r.radius), *nearest = host(r.nearest);
    CHECK_NEAR(radius[0], 3, 1e-12);
    CHECK_NEAR(radius[1], 2, 1e-12);
    CHECK_NEAR(nearest[0], 0, 1e-12);
    CHECK_NEAR(nearest[1], 4, 1e-12);
    tn_radius_destroy(&r);
    tn_cp_destroy(cp);
    double two[2] = {1, 1}, rows[6] = {e0[0], e0[1], e0[2], c[0], c[1], c[2]};
    tn_tensor *both = matrix(&w, 2, 3, rows), *same[2] = {both, both};
    cp = tn_cp_create(w.ctx, 2, matrix(&w, 1, 2, two), same, TN_CP_INPUT_CONSTANT);
    CHECK_STATUS(tn_cp_radius(1, (const tn_cp *const *)&cp, at, &r), TN_OK);
    radius = host(r.radius);
    nearest = host(r.nearest);
    CHECK(!(radius[0] < HUGE_VAL) && nearest[0] != nearest[0]);
    tn_radius_destroy(&r);
    tn_cp_destroy(cp);
    close_world(&w);
}

/* A first layer that copies its input 1/scale times too large makes the bound exact: the radius times scale. For others no
   move that is shorter than the bound changes the answer. */
TEST(radii_of_stacks_are_bounds)
{
    enum { N = 5, H = 6, OUT = 3, ROWS = 4 };
    uint64_t seed = 8;
    world    w;
    REQUIRE(open_world(&w, TN_F64, 9));
    for (int round = 0; round < 6; round++) {
        const double scale = 0.5 + round;
        double       copy[N * (N + 1)] = {0}, ones[N * (N + 1)] = {0}, unit[N * N] = {0};
        for (int i = 0; i < N; i++) {
            copy[i * (N + 1) + i] = 1 / scale;
            ones[i * (N + 1) + N] = unit[i * N + i] = 1;
        }
        tn_tensor   *f[2] = {matrix(&w, N, N + 1, copy), matrix(&w, N, N + 1, ones)}, *x = any_matrix(&w, ROWS, N);
        tn_cp       *first = tn_cp_create(w.ctx, 2, matrix(&w, N, N, unit), f, TN_CP_INPUT_CONSTANT);
        tn_cp       *last = any_cp(&w, 2, OUT, H, N + 1, true), *random = any_cp(&w, 2, N, H, N + 1, true);
        const tn_cp *copies[2] = {first, last}, *others[2] = {random, last}, *three[3] = {random, first, last};
        tn_radius    whole, part, more;
        tn_tensor   *smaller = tn_scale(w.ctx, x, 1 / scale);
        CHECK_STATUS(tn_cp_radius(2, copies, x, &whole), TN_OK);
        CHECK_STATUS(tn_cp_radius(1, copies + 1, smaller, &part), TN_OK);
        double *got = host(whole.radius), *want = host(part.radius);
        CHECK(!whole.nearest && part.nearest);
        for (int i = 0; i < ROWS * OUT; i++)
            CHECK(got[i] == want[i] * scale || fabs(got[i] - want[i] * scale) <= 1e-9 * got[i]);
        CHECK_STATUS(tn_cp_radius(2, others, x, &more), TN_OK);
        double *bound = host(more.radius), *answer = host(more.answer), *rival = host(more.rival), *at = host(x);
        const double *a[3] = {host(random->p), host(random->f[0]), host(random->f[1])};
        const double *b[3] = {host(last->p), host(last->f[0]), host(last->f[1])};
        for (int row = 0; row < ROWS; row++) {
            const double least = bound[row * OUT + (int)rival[row]];
            CHECK(least >= 0);
            for (int tries = 0; tries < 300 && least < HUGE_VAL; tries++) {
                double d[N], y[N], z[OUT];
                for (int i = 0; i < N; i++) d[i] = test_random_real(&seed);
                const double size = frobenius(d, N);
                for (int i = 0; i < N; i++) d[i] = at[row * N + i] + least * (1 - 1e-9) * d[i] / size;
                outputs_of(a[0], a[1], a[2], N, H, N, true, d, y);
                outputs_of(b[0], b[1], b[2], OUT, H, N, true, y, z);
                for (int o = 0; o < OUT; o++) CHECK(z[o] <= z[(int)answer[row]]);
            }
        }
        tn_radius_destroy(&more);
        CHECK_STATUS(tn_cp_radius(3, three, x, &more), TN_OK);
        tn_radius_destroy(&more);
        tn_radius_destroy(&whole);
        tn_radius_destroy(&part);
        tn_cp_destroy(first);
        tn_cp_destroy(last);
        tn_cp_destroy(random);
        fresh(&w);
    }
    close_world(&w);
}

/* Terms that nearly cancel: y0 = 1e-9 x^2 up to rounding, which moves y = (1, y0) of the second layer beyond 1 at x = 31,622. */
TEST(bounds_of_terms_that_cancel)
{
    const double p[2] = {-1, 1}, f0[4] = {1, 0, 1, 0}, f1[4] = {1, 0, 1 + 1e-9, 0}, zero = 0;
    const double q[4] = {1, 0, 0, 1}, g0[4] = {0, 1, 1, 0}, g1[4] = {0, 1, 0, 1};
    world        w;
    REQUIRE(open_world(&w, TN_F64, 2));
    tn_tensor   *first[2] = {matrix(&w, 2, 2, f0), matrix(&w, 2, 2, f1)};
    tn_tensor   *second[2] = {matrix(&w, 2, 2, g0), matrix(&w, 2, 2, g1)};
    const tn_cp *stack[2] = {tn_cp_create(w.ctx, 2, matrix(&w, 1, 2, p), first, TN_CP_INPUT_CONSTANT),
                             tn_cp_create(w.ctx, 2, matrix(&w, 2, 2, q), second, TN_CP_INPUT_CONSTANT)};
    tn_radius    r;
    CHECK_STATUS(tn_cp_radius(2, stack, matrix(&w, 1, 1, &zero), &r), TN_OK);
    double *radius = host(r.radius);
    CHECK(radius[1] > 0 && radius[1] < 31623);
    tn_radius_destroy(&r);
    for (int k = 0; k < 2; k++) tn_cp_destroy((tn_cp *)stack[k]);
    close_world(&w);
}

/* Eigenvalues 1 and 1e-10: the lead is -2e-7 at a distance of 1e5, and the radius is at most that. */
TEST(radius_of_nearly_singular_forms)
{
    /* y0 = x^2 + 1e-10 z^2 - 2e-5 z + (1 - 2e-7), compared with 0: its least value is -2e-7, at z = 1e5. */
    const double p[4] = {1, 1e-10, -2e-5, 1 - 2e-7}, at[2] = {0, 0};
    const double f0[12] = {1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1}, f1[12] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1};
    world        w;
    REQUIRE(open_world(&w, TN_F64, 2));
    tn_tensor *f[2] = {matrix(&w, 4, 3, f0), matrix(&w, 4, 3, f1)};
    tn_cp     *cp = tn_cp_create(w.ctx, 2, matrix(&w, 1, 4, p), f, TN_CP_INPUT_CONSTANT);
    tn_radius  r;
    CHECK_STATUS(tn_cp_radius(1, (const tn_cp *const *)&cp, matrix(&w, 1, 2, at), &r), TN_OK);
    double *radius = host(r.radius);
    CHECK(radius[0] > 9e4 && radius[0] <= 1e5 * (1 + 1e-9));
    tn_radius_destroy(&r);
    tn_cp_destroy(cp);
    close_world(&w);
}

TEST(radius_refuses)
{
    world w;
    REQUIRE(open_world(&w, TN_F32, 1));
    tn_cp       *cp = any_cp(&w, 2, 3, 4, 6, true), *third = any_cp(&w, 3, 3, 4, 6, false), *bad = any_cp(&w, 2, 3, 4, 6, true);
    const tn_cp *one[2] = {cp, NULL}, *twice[2] = {cp, cp}, *order[1] = {third}, *broken[1] = {bad};
    tn_tensor   *x = any_matrix(&w, 2, 5), *wide = any_matrix(&w, 2, 6);
    tn_radius    r;
    const double nan = (double)NAN;
    CHECK_STATUS(tn_write(tn_slice(tn_slice(bad->p, 0, 1, 2), 1, 2, 3), TN_F64, &nan, 1), TN_OK);
    CHECK_STATUS(tn_cp_radius(1, one, NULL, &r), TN_ERR_ARG);
    CHECK_STATUS(tn_cp_radius(1, one, x, NULL), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "radius: out is NULL");
    CHECK_STATUS(tn_cp_radius(0, one, x, &r), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "radius: count is 0, expected 1 to 16");
    CHECK_STATUS(tn_cp_radius(2, one, x, &r), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "radius: layers[1] is NULL");
    CHECK_STATUS(tn_cp_radius(1, one, wide, &r), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "radius: layers[0] takes 5 inputs, expected 6, the columns of x");
    CHECK_STATUS(tn_cp_radius(2, twice, x, &r), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "radius: layers[1] takes 5 inputs, expected 3, the outputs of the layer before it");
    CHECK_STATUS(tn_cp_radius(1, order, any_matrix(&w, 2, 6), &r), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "radius: the operator has order 3, expected 2");
    CHECK_STATUS(tn_cp_radius(1, broken, x, &r), TN_ERR_NONFINITE);
    CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "radius: p");
    CHECK(!r.radius && !r.nearest);
    CHECK_STATUS(tn_cp_radius(1, one, any_matrix(&w, 0, 5), &r), TN_OK);
    CHECK(r.radius && r.radius->shape[0] == 0 && r.radius->shape[1] == 3);
    tn_radius_destroy(&r);
    tn_radius_destroy(NULL);
    tn_cp_destroy(cp);
    tn_cp_destroy(third);
    tn_cp_destroy(bad);
    close_world(&w);
}

TEST(radius_without_memory)
{
    for (int count = 1; count <= 2; count++) {
        world w;
        REQUIRE(open_world(&w, TN_F64, 4));
        tn_cp       *cp = any_cp(&w, 2, 6, 2, 7, true);
        const tn_cp *layers[2] = {cp, cp};
        tn_tensor   *x = tn_tensor_keep(any_matrix(&w, 3, 6));
        for (uint64_t fail = 1; fail < 100; fail++) {
            const size_t held = w.heap.live;
            tn_radius    r;
            w.heap.fail_at = w.heap.count + fail;
            const tn_status s = tn_cp_radius(count, layers, x, &r);
            w.heap.fail_at = 0;
            if (s == TN_OK) {
                CHECK(fail > 3);
                tn_radius_destroy(&r);
                break;
            }
            CHECK_STATUS(s, TN_ERR_MEMORY);
            CHECK(!r.radius && !r.answer && !r.rival && !r.nearest);
            CHECK_INT(w.heap.live, held);
            tn_ctx_clear_error(w.ctx);
        }
        tn_tensor_destroy(x);
        tn_cp_destroy(cp);
        close_world(&w);
    }
}

TEST_MAIN(radii_of_quadratics, radii_of_layers, radius_of_one_output, radii_of_stacks_are_bounds, bounds_of_terms_that_cancel,
          radius_of_nearly_singular_forms, radius_refuses,
          radius_without_memory)
