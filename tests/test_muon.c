/* test_muon.c: Muon against plain loops in double and numpy's numbers, its singular values, the trapezoid, batches taken in parts.

   A gradient is set by backward through sum(p (x) g): it is g, to the bit. */

#include "sealed.h"
enum { MOST = 1024 };
#include "optim.h"

static tn_param *add_matrix(world *w, const char *name, int64_t rows, int64_t columns)
{
    int64_t shape[2] = {rows, columns};
    return add(w, name, 2, shape);
}

static tn_status step_with(world *w, tn_optim *o, double *const *g)
{
    tn_status s = give(w, (const double *const *)g, 1);
    return s == TN_OK ? tn_optim_step(o) : s;
}

static tn_optim_desc muon(double lr)
{
    tn_optim_desc d = ZERO;
    d.kind = TN_OPTIM_MUON;
    d.lr = lr;
    return d;
}

/* ---- against plain loops -------------------------------------------------------------------- */

/* One matrix [r,c]: the polynomial as it is written, in the orientation it has, over and over. */
static void plain_orthogonalise(double *x, int64_t r, int64_t c, int steps)
{
    double *a = doubles(r * r), *b = doubles(r * r);
    double *y = doubles(r * c), norm = 0;
    int64_t k;
    for (int64_t i = 0; i < r * c; i++) norm += x[i] * x[i];
    norm = sqrt(norm);
    for (int64_t i = 0; i < r * c; i++) x[i] = norm > 0 ? x[i] / norm : 0;
    while (steps-- > 0) {
        for (int64_t i = 0; i < r; i++)
            for (int64_t j = 0; j < r; j++)
                for (a[i * r + j] = 0, k = 0; k < c; k++) a[i * r + j] += x[i * c + k] * x[j * c + k];
        for (int64_t i = 0; i < r; i++)
            for (int64_t j = 0; j < r; j++) {
                b[i * r + j] = -4.7750 * a[i * r + j];
                for (k = 0; k < r; k++) b[i * r + j] += 2.0315 * a[i * r + k] * a[k * r + j];
            }
        for (int64_t i = 0; i < r; i++)
            for (int64_t j = 0; j < c; j++) {
                y[i * c + j] = 3.4445 * x[i * c + j];
                for (k = 0; k < r; k++) y[i * c + j] += b[i * r + k] * x[k * c + j];
            }
        memcpy(x, y, sizeof *x * (size_t)(r * c));
    }
}

typedef struct plain {
    double  p[MOST], m[MOST], v[MOST];
    int64_t n, rows, columns;               /* of one matrix */
    bool    adamw;
    double  lr_scale, decay_scale;
} plain;

/* The factor of the rate at step t = 1, 2, ...: the one trapezoid of the rules below, worked out by hand. It has a warm-up
   of 2 steps, and falls linearly to 0.1 over the last 3 of 6. */
static double plain_schedule(const tn_schedule *s, int64_t t)
{
    static const double trapezoid[] = {0.5, 1, 1, 1, 0.7, 0.4, 0.1};
    if (s->kind == TN_SCHEDULE_CONSTANT && s->warmup == 0) return 1;
    CHECK(s->kind == TN_SCHEDULE_TRAPEZOID && s->warmup == 2 && s->total == 6 && s->decay == 3);
    CHECK(s->floor == (double)0.1 && t <= 7);
    return trapezoid[(t - 1) % 7];
}

static void plain_step(const tn_optim_desc *d, plain *a, const double *g, double factor, int64_t t)
{
    double at = plain_schedule(&d->schedule, t) * a->lr_scale, x[MOST];
    double start = d->momentum_start > 0 ? d->momentum_start : 0.85, mu = d->momentum > 0 ? d->momentum : 0.95;
    if (a->adamw) {
        double b1 = d->beta1 > 0 ? d->beta1 : 0.9, b2 = d->beta2 > 0 ? d->beta2 : 0.999, lr = at * (d->adam_lr > 0 ? d->adam_lr : 3e-4);
        for (int64_t i = 0; i < a->n; i++) {
            double gi = g[i] * factor;
            a->m[i] = b1 * a->m[i] + (1 - b1) * gi;
            a->v[i] = b2 * a->v[i] + (1 - b2) * gi * gi;
            a->p[i] -= lr * d->weight_decay * a->decay_scale * a->p[i]
                     + lr * a->m[i] / (1 - pow(b1, (double)t)) / (sqrt(a->v[i] / (1 - pow(b2, (double)t))) + 1e-8);
        }
        return;
    }
    if (t - 1 < d->momentum_warmup) mu = start + (mu - start) * (double)(t - 1) / (double)d->momentum_warmup;
    double scale = a->rows > a->columns ? sqrt((double)a->rows / (double)a->columns) : 1;
    if (d->muon_scale == TN_MUON_SCALE_RMS) scale = 0.2 * sqrt((double)(a->rows > a->columns ? a->rows : a->columns));
    for (int64_t i = 0; i < a->n; i++) {
        a->m[i] = mu * a->m[i] + (1 - mu) * g[i] * factor;
        x[i] = (1 - mu) * g[i] * factor + mu * a->m[i];
    }
    for (int64_t i = 0; i < a->n; i += a->rows * a->columns)
        plain_orthogonalise(x + i, a->rows, a->columns, d->newton_schulz > 0 ? d->newton_schulz : 5);
    for (int64_t i = 0; i < a->n; i++) a->p[i] -= at * d->lr * (d->weight_decay * a->decay_scale * a->p[i] + scale * x[i]);
}

enum { PARAMS = 15, RULES = 6 };

static tn_optim_desc rule(int k)
{
    tn_optim_desc d = muon(0.05);
    d.muon_scale = k % 2 ? TN_MUON_SCALE_RMS : TN_MUON_SCALE_SHAPE;
    if (k > 0) d.adam_lr = 0.01;
    if (k > 1) { d.momentum_warmup = 4; d.weight_decay = 0.1; }
    if (k > 2) { d.momentum = 0.9; d.momentum_start = 0.6; d.clip_norm = 1.5; }
    if (k > 3) { d.beta1 = 0.8; d.beta2 = 0.95; d.newton_schulz = k - 1; }
    if (k > 4) { d.schedule.kind = TN_SCHEDULE_TRAPEZOID; d.schedule.warmup = 2; d.schedule.total = 6; d.schedule.decay = 3; d.schedule.floor = 0.1; }
    return d;
}

/* Tall, wide, square, one row, one column, one number, batches, nothing at all, and what AdamW gets. */
static double some_steps(tn_dtype dtype, const tn_optim_desc *d, const tn_backend *backend, int steps)
{
    static const int64_t shape[PARAMS][5] = {       /* rank first */
        {2, 5, 7}, {2, 7, 5}, {2, 6, 6}, {2, 1, 9}, {2, 9, 1}, {2, 1, 1}, {3, 3, 4, 6}, {4, 2, 2, 5, 3}, {2, 0, 4}, {2, 3, 0},
        {3, 0, 3, 4}, {2, 40, 23}, {1, 11}, {0}, {2, 6, 4}
    };
    world   w;
    plain  *a = (plain *)calloc(PARAMS, sizeof *a);
    double *g[PARAMS], v[MOST], worst = 0;
    if (!open_on(&w, dtype, 5, 1, backend)) { free(a); return 1; }
    for (int k = 0; k < PARAMS; k++) {
        int  rank = (int)shape[k][0];
        char name[16];
        snprintf(name, sizeof name, "p%02d", k);
        tn_param *p = add(&w, name, rank, shape[k] + 1);
        g[k] = (double *)calloc(MOST, sizeof **g);
        a[k].n = values_of(p->value, a[k].p);
        a[k].rows = rank < 2 ? 1 : shape[k][rank - 1];
        a[k].columns = rank < 2 ? 1 : shape[k][rank];
        a[k].lr_scale = a[k].decay_scale = 1;
        a[k].adamw = rank < 2 || k == PARAMS - 1;
    }
    CHECK_INT(tn_params_use_adamw(w.params, "p14"), 1);
    CHECK_INT(tn_params_set_scales(w.params, "p0*", 0.5, 2), 10);
    for (int k = 0; k < 10; k++) { a[k].lr_scale = 0.5; a[k].decay_scale = 2; }
    CHECK_INT(tn_params_set_scales(w.params, "p1*", 0.7, 0.3), 5);              /* some of Muon's, some of AdamW's */
    for (int k = 10; k < PARAMS; k++) { a[k].lr_scale = 0.7; a[k].decay_scale = 0.3; }
    tn_optim *o = tn_optim_create(w.params, d);
    for (int64_t t = 1; t <= steps; t++) {
        double sum = 0;
        for (int k = 0; k < PARAMS; k++) {
            any(&w, g[k], a[k].n, t % 3 ? 1 : 0.01);
            for (int64_t i = 0; i < a[k].n && dtype == TN_F32; i++) g[k][i] = (double)(float)g[k][i];
            for (int64_t i = 0; i < a[k].n; i++) sum += g[k][i] * g[k][i];
        }
        double factor = d->clip_norm > 0 && sqrt(sum) > d->clip_norm ? d->clip_norm / sqrt(sum) : 1;
        CHECK_STATUS(step_with(&w, o, g), TN_OK);
        for (int k = 0; k < PARAMS; k++) {
            plain_step(d, &a[k], g[k], factor, t);
            values_of(tn_params_at(w.params, k)->value, v);
            double error = test_frobenius(v, a[k].p, a[k].n);
            test_raise(&worst, error);
            values_of(tn_params_at(w.params, k)->value->grad, v);
            for (int64_t i = 0; i < a[k].n; i++) CHECK(v[i] == 0);          /* zero afterwards */
        }
    }
    for (int k = 0; k < PARAMS; k++) free(g[k]);
    free(a);
    close_world(&w);
    return worst;
}

static void against_plain_loops_on(const tn_backend *backend, const char *what, int rules)
{
    for (size_t i = 0; i < 2; i++) {
        double worst = 0;
        for (int k = RULES - rules; k < RULES; k++) {
            tn_optim_desc d = rule(k);
            double        error = some_steps(f64_f32[i], &d, backend, 7);
            test_raise(&worst, error);
        }
        report_as(what, f64_f32[i], worst, 5e-15, 2e-6);
    }
}

TEST(against_plain_loops)              { against_plain_loops_on(NULL, "seven steps", RULES); }
TEST(against_plain_loops_on_reference) { against_plain_loops_on(tn_reference_backend(), "seven steps, reference", 2); }

TEST(against_plain_loops_on_sealed)
{
#if SEALED
    against_plain_loops_on(sealed_cpu(), "seven steps, sealed", 2);
    against_plain_loops_on(sealed_sparse(), "seven steps, sealed without the rows", 1);
    CHECK_INT(sealed_damaged(), 0);
#else
    SKIP("mmap", "this system has no mprotect");
#endif
}

/* numpy's, in double: tools/golden_optim.py */
static const double golden_muon[2][12] = {
    /* lr 0.05 */
    {-0.099852381332396267, 0.66737156608123505, -0.026448022334020181,
     -0.20285466668593349, 0.56207560288303249, -0.11447310292542592,
     -0.28417524557934576, 0.43584377811994579, -0.28434396387300281,
     -0.48727776774857551, -0.16501596087331372, -0.23497125369019917},
    /* TN_MUON_SCALE_RMS, lr 0.05, decay 0.1, momentum from 0.85 in 5 steps */
    {-0.17748387457658507, 0.61443872525909982, 0.06073616588591297,
     -0.27854543563825046, 0.50031934789184906, -0.06588684062545444,
     -0.38710387597719681, 0.37202514875387055, -0.16670070227242603,
     -0.54772753824273757, 0.091089733288846925, -0.22558362301381651},
};
TEST(golden)
{
    double worst = 0;
    for (int k = 0; k < 2; k++) {
        world         w;
        tn_optim_desc d = muon(0.05);
        double        v[MOST], g[MOST], *gs = g;
        if (!open_on(&w, TN_F64, 1, 1, NULL)) return;
        d.muon_scale = k ? TN_MUON_SCALE_RMS : TN_MUON_SCALE_SHAPE;
        d.weight_decay = k ? 0.1 : 0;
        d.momentum_warmup = k ? 5 : 0;
        add_matrix(&w, "p", 4, 3);
        for (int i = 0; i < 12; i++) v[i] = ((7 * i + 3) % 11 - 5) / 8.0;
        tn_write(tn_params_at(w.params, 0)->value, TN_F64, v, 12);
        tn_optim *o = tn_optim_create(w.params, &d);
        for (int t = 0; t < 10; t++) {
            for (int i = 0; i < 12; i++) g[i] = ((5 * i + 3 * t + i * t) % 13 - 6) / 8.0;
            CHECK_STATUS(step_with(&w, o, &gs), TN_OK);
        }
        values_of(tn_params_at(w.params, 0)->value, v);
        double error = test_max_error(v, golden_muon[k], 12);
        test_raise(&worst, error);
        close_world(&w);
    }
    WORST("numpy's parameters after ten steps of Muon", worst, 5e-15);
}

/* ---- what the update is ----------------------------------------------------------------------- */

/* The singular values of what a first step with gradient g takes away, over lr and scale. */
static void first_update(world *w, int64_t rows, int64_t columns, const double *gradient, double *update, double *low, double *high)
{
    tn_optim_desc d = muon(1);
    tn_params    *ps = w->params;
    double        before[MOST], g[MOST], *gs = g, scale = rows > columns ? sqrt((double)rows / (double)columns) : 1;
    tn_svd_result svd;
    int64_t       n = rows * columns, k = rows < columns ? rows : columns;
    w->params = tn_params_create(w->ctx);
    add_matrix(w, "p", rows, columns);
    tn_optim *o = tn_optim_create(w->params, &d);
    memcpy(g, gradient, sizeof *g * (size_t)n);
    values_of(tn_params_at(w->params, 0)->value, before);
    CHECK_STATUS(step_with(w, o, &gs), TN_OK);
    values_of(tn_params_at(w->params, 0)->value, update);
    for (int64_t i = 0; i < n; i++) update[i] = (before[i] - update[i]) / scale;
    tn_tensor *t = tn_tensor_2d(w->ctx, TN_REAL, rows, columns);
    tn_write(t, TN_F64, update, n);
    CHECK_STATUS(tn_svd(w->ctx, t, NULL, &svd), TN_OK);
    CHECK(svd.s && tn_read(svd.s, TN_F64, before, k) == TN_OK);
    *high = before[0];
    *low = before[k - 1];
    tn_svd_destroy(&svd);
    tn_optim_destroy(o);
    tn_params_destroy(w->params);
    w->params = ps;
}

TEST(singular_values_are_about_one)
{
    static const int64_t shape[][2] = {{1, 1}, {1, 30}, {30, 1}, {8, 20}, {20, 8}, {16, 48}, {12, 13}};
    double below = 0, above = 0;
    for (size_t t = 0; t < 2 * (sizeof shape / sizeof *shape); t++) {
        world  w;
        double g[MOST], update[MOST], a, b;
        if (!open_on(&w, f64_f32[t % 2], 3 + t, 1, NULL)) return;
        any(&w, g, shape[t / 2][0] * shape[t / 2][1], t % 3 == 0 ? 1e-12 : t % 3 == 1 ? 1e9 : 1);      /* of any size */
        first_update(&w, shape[t / 2][0], shape[t / 2][1], g, update, &a, &b);
        test_raise(&below, 1 - a);
        test_raise(&above, b - 1);
        close_world(&w);
    }
    WORST("1 - the smallest singular value of an update", below, 0.35);
    WORST("the largest singular value of an update - 1", above, 0.2);
}

/* Columns of the orthogonal matrix of the discrete cosine transform: from_singular_values makes U diag(s) V^T times `size`
   of them. */
static double cosine(int64_t n, int64_t i, int64_t k)
{
    return sqrt((k == 0 ? 1.0 : 2.0) / (double)n) * cos(acos(-1.0) * (double)((2 * i + 1) * k) / (double)(2 * n));
}

static void from_singular_values(double *a, int64_t rows, int64_t columns, const double *s, double size)
{
    int64_t k, most = rows < columns ? rows : columns;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (a[i * columns + j] = 0, k = 0; k < most; k++)
                a[i * columns + j] += size * s[k] * cosine(rows, i, k) * cosine(columns, j, most - 1 - k);
}

/* An update of Muon has the singular vectors of its gradient: the odd polynomial acts on each singular value alone, and
   these are computed here one by one. The size of the gradient has no effect, down to 1e-30, where the update becomes
   zero. */
static double polynomial_on(const tn_backend *backend, tn_dtype dtype)
{
    static const int64_t shape[][2] = {{1, 1}, {1, 9}, {9, 1}, {8, 20}, {20, 8}, {16, 16}, {31, 32}};
    static const double  size[] = {1, 1e-12, 1e25, 1.001e-30, 0.999e-30};
    double worst = 0;
    for (size_t at = 0; at < sizeof shape / sizeof *shape * 5 * 4; at++) {
        const int64_t rows = shape[at / 20][0], columns = shape[at / 20][1];
        const int64_t n = rows * columns, most = rows < columns ? rows : columns;
        const double  wanted = size[at % 5], mu = 0.95, scale = rows > columns ? sqrt((double)rows / (double)columns) : 1;
        const int     spectrum = (int)(at / 5 % 4), steps = spectrum == 3 ? 9 : 5;
        world         w;
        tn_optim_desc d = muon(1);
        double        s[64], g[MOST], want[MOST], got[MOST], *gs = g, norm = 0;
        d.newton_schulz = steps == 5 ? 0 : steps;
        if (!open_on(&w, dtype, 3, 1, backend)) return HUGE_VAL;
        for (int64_t k = 0; k < most; k++) {
            switch (spectrum) {
            case 0:  s[k] = 1; break;
            case 1:  s[k] = pow(10, -4.0 * (double)k / (double)most); break;
            case 2:  s[k] = k % 2 == 0; break;
            default: s[k] = 1.0 / (double)(k + 1);
            }
            norm += s[k] * s[k];
        }
        for (int64_t k = 0; k < most; k++) s[k] /= sqrt(norm);
        from_singular_values(g, rows, columns, s, wanted / ((1 - mu) * (1 + mu)));  /* Nesterov's step makes it `wanted` */
        for (int64_t k = 0; k < most; k++)
            for (int i = 0; i < steps; i++) s[k] *= 3.4445 + s[k] * s[k] * (-4.7750 + 2.0315 * s[k] * s[k]);
        from_singular_values(want, rows, columns, s, wanted < 1e-30 ? 0 : -scale);
        tn_tensor *p = add_matrix(&w, "p", rows, columns)->value;
        for (int64_t i = 0; i < n; i++) got[i] = 0;
        tn_write(p, TN_F64, got, n);
        tn_optim *o = tn_optim_create(w.params, &d);
        CHECK_STATUS(step_with(&w, o, &gs), TN_OK);
        values_of(p, got);
        if (test_raise(&worst, test_frobenius(got, want, n)) && worst > (dtype == TN_F64 ? 3e-13 : 5e-5))
            printf("     %d x %d, size %g, spectrum %d\n", (int)rows, (int)columns, wanted, spectrum);
        close_world(&w);
    }
    return worst;
}

TEST(polynomial_of_singular_values)
{
    for (int k = 0; k < 2; k++) {
        report_as("an update against its singular values", f64_f32[k], polynomial_on(NULL, f64_f32[k]), 3e-13, 5e-5);
        report_as("an update against its singular values, reference", f64_f32[k], polynomial_on(tn_reference_backend(), f64_f32[k]),
                  3e-13, 5e-5);
    }
}

/* u v^T stays along u v^T; a matrix of zeros stays zero, and so does one of a batch beside others. */
TEST(rank_one_and_zero)
{
    world     w;
    double    g[MOST], update[MOST], before[MOST], *gs = g, along = 0, size = 0, low, high;
    int64_t   shape[3] = {3, 4, 5};
    tn_optim_desc d = muon(0.1);
    if (!open_on(&w, TN_F32, 8, 1, NULL)) return;
    for (int i = 0; i < 12 * 7; i++) g[i] = (i / 7 - 5.5) * (i % 7 - 2.5) / 16;
    first_update(&w, 12, 7, g, update, &low, &high);
    for (int i = 0; i < 12 * 7; i++) { along += g[i] * update[i]; size += g[i] * g[i]; }
    CHECK_NEAR(along / sqrt(size), high, 1e-5);                  /* all of it lies along g */
    CHECK(high > 0.68 && high < 1.2 && fabs(low) < 1e-5);
    memset(g, 0, sizeof g);
    first_update(&w, 4, 6, g, update, &low, &high);
    CHECK(low == 0 && high == 0);
    add(&w, "batch", 3, shape);
    tn_optim *o = tn_optim_create(w.params, &d);
    any(&w, g, 20, 1);
    any(&w, g + 40, 20, 1e-3);
    values_of(tn_params_at(w.params, 0)->value, before);
    CHECK_STATUS(step_with(&w, o, &gs), TN_OK);
    values_of(tn_params_at(w.params, 0)->value, update);
    CHECK(memcmp(before + 20, update + 20, sizeof *before * 20) == 0);
    for (int i = 0; i < 60; i += 40) {
        double moved = 0;
        for (int k = i; k < i + 20; k++) moved += (before[k] - update[k]) * (before[k] - update[k]);
        CHECK(sqrt(moved / 4) > 0.065 && sqrt(moved / 4) < 0.12);           /* four singular values of about 0.1 each */
    }
    close_world(&w);
}

/* ---- who gets which rule --------------------------------------------------------------------------- */

TEST(embeddings_are_marked)
{
    world             w;
    tn_embedding_desc ed = ZERO;
    tn_embedding      e;
    tn_linear_desc    ld = ZERO;
    tn_linear         head, other;
    tn_transformer      model;
    tn_transformer_desc md = ZERO;
    ed.count = ld.out = 7;
    ed.dim = ld.in = 4;
    if (!open_on(&w, TN_F32, 1, 1, NULL)) return;
    CHECK_STATUS(tn_linear_init(w.params, "head", &ld, &head), TN_OK);
    CHECK_STATUS(tn_linear_init(w.params, "other", &ld, &other), TN_OK);
    CHECK_STATUS(tn_params_tie(w.params, "embed.w", "head.w"), TN_OK);
    CHECK(!tn_params_find(w.params, "head.w")->adamw);
    CHECK_STATUS(tn_embedding_init(w.params, "embed", &ed, &e), TN_OK);
    CHECK(tn_params_find(w.params, "head.w")->adamw && !tn_params_find(w.params, "other.w")->adamw);
    CHECK_STATUS(tn_embedding_init(w.params, "more", &ed, &e), TN_OK);
    CHECK(tn_params_find(w.params, "more.w")->adamw);
    tn_params *copy = tn_params_clone(w.ctx, w.params);
    CHECK(tn_params_find(copy, "more.w")->adamw && !tn_params_find(copy, "other.w")->adamw);
    md.vocab = 9; md.layers = 1; md.dim = 8; md.heads = 2; md.context = 5;
    md.mlp_bias = md.attn_bias = true;
    md.attention = TN_ATTENTION_DIFFERENTIAL;
    md.positions = TN_POSITIONS_LEARNED;
    copy = tn_params_create(w.ctx);
    CHECK_STATUS(tn_transformer_init(copy, "", &md, &model), TN_OK);
    for (int64_t i = 0; i < tn_params_count(copy); i++) {
        const tn_param *p = tn_params_at(copy, i);
        bool matrix = strstr(p->name, ".qk") || strstr(p->name, ".v") || strstr(p->name, ".o") || strstr(p->name, "mlp.w") || strstr(p->name, "mlp.p");
        if (strstr(p->name, "_b")) matrix = false;
        if (!CHECK(p->adamw != matrix)) printf("     %s\n", p->name);
    }
    CHECK_INT(tn_params_use_adamw(w.params, "o*.w"), 1);
    CHECK(tn_params_find(w.params, "other.w")->adamw);
    CHECK_INT(tn_params_use_adamw(w.params, NULL), 0);
    CHECK_INT(tn_params_use_adamw(NULL, ""), 0);
    CHECK_INT(tn_params_use_adamw(w.params, ""), 3);
    close_world(&w);
}

/* A parameter that is given to another rule starts there as one of the first step does. */
TEST(a_rule_that_changes)
{
    world         w;
    tn_optim_desc d = muon(0.05);
    plain        *a = (plain *)calloc(1, sizeof *a);
    double        g[MOST], v[MOST], *gs = g;
    d.adam_lr = 0.01;
    if (!open_on(&w, TN_F64, 1, 1, NULL)) { free(a); return; }
    tn_param *p = add_matrix(&w, "p", 3, 5);
    tn_optim *o = tn_optim_create(w.params, &d);
    for (int t = 1; t <= 9; t++) {
        if (t == 4 || t == 7) {
            p->adamw = t == 4;
            memset(a, 0, sizeof *a);
        }
        if (t == 1 || t == 4 || t == 7) {
            a->n = values_of(p->value, a->p);
            a->rows = 3;
            a->columns = 5;
            a->lr_scale = a->decay_scale = 1;
            a->adamw = p->adamw;
        }
        any(&w, g, 15, 1);
        plain_step(&d, a, g, 1, 1 + (t - 1) % 3);
        CHECK_STATUS(step_with(&w, o, &gs), TN_OK);
        values_of(p->value, v);
        CHECK(test_frobenius(v, a->p, 15) < 1e-13);
    }
    free(a);
    close_world(&w);
}

TEST(momentum_warms_up)
{
    world         w;
    tn_optim_desc d = muon(0.02);
    double        g[MOST], *gs = g;
    if (!open_on(&w, TN_F32, 1, 1, NULL)) return;
    d.momentum_warmup = 4;
    add_matrix(&w, "p", 2, 2);
    tn_optim *o = tn_optim_create(w.params, &d);
    any(&w, g, 4, 1);
    for (int t = 0; t < 7; t++) {
        CHECK_NEAR(tn_optim_momentum(o), t < 4 ? 0.85 + 0.025 * t : 0.95, 1e-15);
        CHECK_STATUS(step_with(&w, o, &gs), TN_OK);
    }
    tn_optim_destroy(o);
    d.kind = TN_OPTIM_SGD;
    d.momentum = 0.5;
    CHECK_NEAR(tn_optim_momentum(tn_optim_create(w.params, &d)), 0.5, 0);
    CHECK_NEAR(tn_optim_momentum(tn_optim_create(w.params, NULL)), 0, 0);
    CHECK_NEAR(tn_optim_momentum(NULL), 0, 0);
    close_world(&w);
}

TEST(defaults_and_bad_descs)
{
    world         w;
    int           nine = 9;                                                 /* which C++ does not let in by a cast */
    static const char *const said[11] = {
        "optim: muon_scale is 9, not a valid tn_muon_scale", "optim: newton_schulz is -1, expected 1 to 20",
        "optim: newton_schulz is 21, expected 1 to 20", "optim: adam_lr is -1, expected a number > 0",
        "optim: adam_lr is nan, expected a number > 0", "optim: momentum_warmup is -1, expected 0 or more",
        "optim: momentum_start is 1, expected a number >= 0 and < 1", "optim: momentum is 1, expected a number >= 0 and < 1",
        "optim: schedule.decay is 6, expected 0 to total - warmup = 5",
        "optim: schedule.decay is -1, expected 0 to total - warmup = 5",
        "optim: schedule.total is 5, expected more than warmup = 5"};
    if (!open_on(&w, TN_F32, 1, 1, NULL)) return;
    tn_optim_desc d = muon(0);
    CHECK_NEAR(tn_optim_lr(tn_optim_create(w.params, &d)), 0.02, 0);
    d.muon_scale = TN_MUON_SCALE_RMS;
    CHECK_NEAR(tn_optim_lr(tn_optim_create(w.params, &d)), 1e-3, 0);
    for (int k = 0; k < 11; k++) {
        d = muon(0.1);
        if (k == 0) memcpy(&d.muon_scale, &nine, sizeof d.muon_scale);
        if (k == 1) d.newton_schulz = -1;
        if (k == 2) d.newton_schulz = 21;
        if (k == 3) d.adam_lr = -1;
        if (k == 4) d.adam_lr = (double)NAN;
        if (k == 5) d.momentum_warmup = -1;
        if (k == 6) d.momentum_start = 1;
        if (k == 7) d.momentum = 1;
        if (k >= 8) { d.schedule.kind = TN_SCHEDULE_TRAPEZOID; d.schedule.warmup = 5; d.schedule.total = 10; }
        if (k == 8) d.schedule.decay = 6;
        if (k == 9) d.schedule.decay = -1;
        if (k == 10) d.schedule.total = 5;
        REFUSED(w.ctx, tn_optim_create(w.params, &d), TN_ERR_ARG, said[k]);
    }
    close_world(&w);
}

/* ---- schedules ---------------------------------------------------------------------------------------- */

TEST(trapezoid)
{
    tn_schedule s = ZERO;
    s.kind = TN_SCHEDULE_TRAPEZOID;
    s.warmup = 4;
    s.total = 100;
    s.decay = 20;
    s.floor = 0.1;
    CHECK_NEAR(tn_schedule_at(&s, 0), 0.25, 0);
    CHECK_NEAR(tn_schedule_at(&s, -3), 0.25, 0);
    CHECK_NEAR(tn_schedule_at(&s, 3), 1, 0);
    for (int64_t t = 4; t <= 80; t++) CHECK(tn_schedule_at(&s, t) == 1);
    CHECK_NEAR(tn_schedule_at(&s, 85), 1 - 0.9 * 0.25, 1e-15);
    CHECK_NEAR(tn_schedule_at(&s, 90), 0.55, 1e-15);
    CHECK_NEAR(tn_schedule_at(&s, 100), 0.1, 1e-15);
    CHECK_NEAR(tn_schedule_at(&s, 100000), 0.1, 1e-15);
    s.one_minus_sqrt = true;
    CHECK_NEAR(tn_schedule_at(&s, 80), 1, 0);
    CHECK_NEAR(tn_schedule_at(&s, 85), 0.1 + 0.9 * 0.5, 1e-15);             /* 1 - sqrt(1/4) */
    CHECK_NEAR(tn_schedule_at(&s, 100), 0.1, 1e-15);
    s.one_minus_sqrt = false;
    s.decay = 0;                                                            /* a fifth of total */
    CHECK_NEAR(tn_schedule_at(&s, 80), 1, 0);
    CHECK_NEAR(tn_schedule_at(&s, 90), 0.55, 1e-15);
    s.warmup = 95;                                                          /* or what the warm-up leaves */
    CHECK_NEAR(tn_schedule_at(&s, 95), 1, 0);
    CHECK_NEAR(tn_schedule_at(&s, 96), 1 - 0.9 * 0.2, 1e-15);
    s.warmup = 0;                                                           /* a fifth that is less than a step is one */
    for (s.total = 1; s.total < 5; s.total++) {
        CHECK_NEAR(tn_schedule_at(&s, s.total - 1), 1, 0);
        CHECK_NEAR(tn_schedule_at(&s, s.total), 0.1, 1e-15);
    }
}

/* ---- training ------------------------------------------------------------------------------------------- */

static bool train(run *r, int steps, int threads)
{
    tn_optim_desc d = muon(0.02);
    d.schedule.kind = TN_SCHEDULE_TRAPEZOID;
    d.schedule.total = steps;
    d.schedule.decay = steps / 2;
    d.momentum_warmup = 30;
    d.adam_lr = 0.01;
    return learns(r, &d, 48, true, steps, threads, NULL);
}

TEST(a_teacher_is_learnt)
{
    run r;
    if (!train(&r, 1500, 1)) return;
    WORST("bilinear student, Muon: last loss / first", r.last / r.first, 3e-6);
    CHECK_INT(r.allocations, 0);
}

TEST(same_bits_for_any_threads_and_twice)
{
    run first, again;
    for (int threads = 1; threads <= 3; threads++) {
        if (!train(threads == 1 ? &first : &again, 40, threads)) return;
        if (threads > 1) CHECK(memcmp(first.w, again.w, sizeof first.w) == 0);
    }
    if (!train(&again, 40, 1)) return;
    CHECK(memcmp(first.w, again.w, sizeof first.w) == 0);
}

/* Large enough for several tasks and packed products: the same bits, and for a batch those of its members. */
TEST(same_bits_for_large_matrices)
{
    double *bits[4];
    const int64_t n = 300 * 260;
    for (int k = 0; k < 4; k++) {
        world         w;
        tn_optim_desc d = muon(0.1);
        int64_t       shape[3] = {2, 300, 260};
        if (!open_on(&w, TN_F32, 4, k < 3 ? k + 1 : 1, NULL)) return;
        tn_tensor *p = add(&w, "p", 3, shape)->value;
        tn_optim *o = tn_optim_create(w.params, &d);
        for (int t = 0; t < 2; t++) {
            tn_ctx_reset(w.ctx);
            tn_record(w.ctx);
            tn_tensor *g = tn_normal(w.ctx, 3, shape, 0, 1);
            CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, tn_mul(w.ctx, p, g))), TN_OK);
            CHECK_STATUS(tn_optim_step(o), TN_OK);
        }
        bits[k] = (double *)malloc(sizeof(double) * 2 * (size_t)n);
        tn_read(p, TN_F64, bits[k], 2 * n);
        if (k > 0) CHECK(memcmp(bits[0], bits[k], sizeof(double) * 2 * (size_t)n) == 0);
        close_world(&w);
    }
    for (int k = 0; k < 4; k++) free(bits[k]);
}

/* ---- a batch in parts ---------------------------------------------------------------------------------------- */

/* 24 rows at once, or as parts of equal size: the same gradient, so the same run. */
TEST(accumulation_is_the_whole_batch)
{
    for (size_t at = 0; at < 6; at++) {
        tn_dtype      dtype = f64_f32[at % 2];
        tn_optim_kind kind = at / 2 == 0 ? TN_OPTIM_ADAMW : at / 2 == 1 ? TN_OPTIM_SGD : TN_OPTIM_MUON;
        double        result[4][2 * 5 * 4], worst = 0;
        for (int k = 0; k < 4; k++) {
            static const int parts_of[4] = {1, 2, 3, 24};
            int            parts = parts_of[k], rows = 24 / parts;
            world          w;
            tn_mlp_desc    md = ZERO;
            tn_mlp         m;
            tn_optim_desc  d = muon(0.05);
            uint64_t       seed = 77;
            md.in = 4; md.hidden = 5; md.out = 3; md.bias = true;
            d.kind = kind;
            d.momentum = 0.9;
            d.clip_norm = 0.3;
            if (!open_on(&w, dtype, 21, 1, NULL)) return;
            CHECK_STATUS(tn_mlp_init(w.params, "m", &md, &m), TN_OK);
            tn_optim *o = tn_optim_create(w.params, &d);
            for (int t = 0; t < 6; t++) {
                double  x[24 * 4];
                int32_t label[24];
                for (int i = 0; i < 24 * 4; i++) x[i] = test_random_real(&seed);
                for (int i = 0; i < 24; i++) label[i] = (int32_t)test_random_int(&seed, 0, 2);
                for (int part = 0; part < parts; part++) {
                    tn_ctx_reset(w.ctx);
                    tn_tensor *in = tn_tensor_2d(w.ctx, TN_REAL, rows, 4);
                    tn_tensor *y = tn_tensor_1d(w.ctx, TN_I32, rows);
                    tn_write(in, TN_F64, x + part * rows * 4, rows * 4);
                    tn_write(y, TN_I32, label + part * rows, rows);
                    tn_record(w.ctx);
                    CHECK_STATUS(tn_backward(w.ctx, tn_scale(w.ctx, tn_cross_entropy(w.ctx, tn_mlp_forward(w.ctx, &m, in), y), 1.0 / parts)), TN_OK);
                }
                CHECK_STATUS(tn_optim_step(o), TN_OK);
            }
            tn_read(m.w, TN_F64, result[k], 2 * 5 * 4);
            if (k > 0) {
                double error = test_max_error(result[k], result[0], 2 * 5 * 4);
                test_raise(&worst, error);
            }
            close_world(&w);
        }
        report_as(kind == TN_OPTIM_ADAMW ? "six steps in parts, AdamW" : kind == TN_OPTIM_SGD ? "six steps in parts, SGD"
               : "six steps in parts, Muon", dtype,
               worst, 2e-14, 5e-6);
    }
}

/* A part whose gradient is not finite, whichever: the step is skipped, names the parameter, and the next one is as if this had never been. */
static void not_finite_on(const tn_backend *backend)
{
    for (int k = 0; k < 12; k++) {
        world         w, same;
        tn_optim_desc d = muon(0.05);
        double        g[3][MOST], bad[MOST], before[3][MOST], after[MOST], *good[3], *broken[3];
        d.clip_norm = k & 1 ? 1 : 0;
        d.kind = k < 6 ? TN_OPTIM_MUON : TN_OPTIM_ADAMW;
        if (!open_on(&w, f64_f32[k & 1], 3, 1, backend) || !open_on(&same, f64_f32[k & 1], 3, 1, backend)) return;
        for (int i = 0; i < 2; i++) {
            add_matrix(i ? &same : &w, "body.w", 4, 6);
            add_matrix(i ? &same : &w, "body.u", 6, 4);
            tn_params_use_adamw(i ? same.params : w.params, "body.u");
            add_matrix(i ? &same : &w, "head.w", 3, 2);
        }
        for (int i = 0; i < 3; i++) good[i] = broken[i] = g[i];
        tn_optim *o = tn_optim_create(w.params, &d);
        tn_optim *p = tn_optim_create(same.params, &d);
        for (int t = 0; t < 5; t++) {
            int which = k % 3;
            for (int i = 0; i < 3; i++) any(&w, g[i], 24, 1);
            CHECK_STATUS(step_with(&w, o, good), TN_OK);
            CHECK_STATUS(step_with(&same, p, good), TN_OK);
            if (t != 2) continue;
            memcpy(bad, g[which], sizeof bad);
            bad[5] = k & 2 ? HUGE_VAL : (double)NAN;
            broken[which] = bad;
            for (int i = 0; i < 3; i++) values_of(tn_params_at(w.params, i)->value, before[i]);
            for (int part = 0; part < 3; part++) CHECK_STATUS(give(&w, (const double *const *)(part == k % 2 ? broken : good), 1.0 / 3), TN_OK);
            CHECK_STATUS(tn_optim_step(o), TN_ERR_NONFINITE);
            CHECK(strstr(tn_ctx_error(w.ctx), which == 0 ? "body.w" : which == 1 ? "body.u" : "head.w") != NULL);
            CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "step 4:");
            for (int i = 0; i < 3; i++) {
                int64_t n = values_of(tn_params_at(w.params, i)->value, after);
                CHECK(memcmp(before[i], after, sizeof *after * (size_t)n) == 0);
                values_of(tn_params_at(w.params, i)->value->grad, after);
                for (int64_t j = 0; j < n; j++) CHECK(after[j] == 0);
            }
        }
        for (int i = 0; i < 3; i++) {
            int64_t n = values_of(tn_params_at(w.params, i)->value, before[0]);
            values_of(tn_params_at(same.params, i)->value, after);
            CHECK(memcmp(before[0], after, sizeof *after * (size_t)n) == 0);
        }
        close_world(&same);
        close_world(&w);
    }
}

TEST(not_finite)              { not_finite_on(NULL); }
TEST(not_finite_on_reference) { not_finite_on(tn_reference_backend()); }

/* Each allocation fails once: the step says so, nothing leaks, and the next one goes on. */
TEST(no_memory)
{
    uint64_t last = 0;
    for (uint64_t k = 1; k < 80; k++) {
        world         w;
        tn_optim_desc d = muon(0.1);
        double        g[MOST], v[MOST];
        double       *gs[2] = {g, g};
        if (!open_on(&w, TN_F32, 1, 1, NULL)) return;
        add_matrix(&w, "a", 3, 7);
        add_matrix(&w, "b", 9, 2);
        any(&w, g, 21, 1);
        w.heap.count = 0;
        w.heap.fail_at = k;
        tn_optim *o = tn_optim_create(w.params, &d);
        if (!o) {
            CHECK_ERROR(w.ctx, TN_ERR_MEMORY, "memory");
            CHECK((o = tn_optim_create(w.params, &d)) != NULL);
        }
        tn_status s = step_with(&w, o, gs);
        if (s != TN_OK) {
            CHECK_ERROR(w.ctx, TN_ERR_MEMORY, "memory");
            last = k;
            tn_params_zero_grad(w.params);
            s = step_with(&w, o, gs);
        }
        CHECK_STATUS(s, TN_OK);
        values_of(tn_params_at(w.params, 0)->value, v);
        for (int i = 0; i < 21; i++) CHECK(fabs(v[i]) < 10);
        close_world(&w);
    }
    CHECK(last > 5);
}

TEST_MAIN(against_plain_loops, against_plain_loops_on_reference, against_plain_loops_on_sealed, golden, singular_values_are_about_one,
          polynomial_of_singular_values,
          rank_one_and_zero, embeddings_are_marked, a_rule_that_changes, momentum_warms_up, defaults_and_bad_descs, trapezoid,
          a_teacher_is_learnt, same_bits_for_any_threads_and_twice, same_bits_for_large_matrices, accumulation_is_the_whole_batch, not_finite,
          not_finite_on_reference, no_memory)
