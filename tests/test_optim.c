/* test_optim.c: parameters, init rules, layers that fail, and the optimisers against plain loops and PyTorch's numbers.

   A gradient is set by backward through sum(p (x) g): it is g, to the bit. Every world is one context with an allocator that
   counts: closing it checks that no error is left, and no byte. */

#include "sealed.h"
enum { MOST = 64 };
#include "optim.h"

/* ---- parameters whose gradients are given -------------------------------------- */

static tn_param *add_vector(world *w, const char *name, int64_t n) { return add(w, name, 1, &n); }

/* One parameter p gets the gradient g, and a step is taken. */
static tn_status step_with(world *w, tn_optim *o, const double *g)
{
    tn_status s = give(w, &g, 1);
    return s == TN_OK ? tn_optim_step(o) : s;
}

/* ---- against plain loops --------------------------------------------------------- */

static tn_optim_desc desc_of(tn_optim_kind kind, double lr, double decay)
{
    tn_optim_desc d = ZERO;
    d.kind = kind;
    d.lr = lr;
    d.weight_decay = decay;
    return d;
}

typedef struct plain { double p[MOST], m[MOST], v[MOST]; int64_t n; double lr_scale, decay_scale; } plain;

/* AdamW: Loshchilov & Hutter 2019, algorithm 2. SGD: Sutskever et al. 2013 as PyTorch writes it, with decoupled decay. */
static void plain_step(const tn_optim_desc *d, plain *a, const double *g, double factor, double rate, int64_t t)
{
    double lr = rate * a->lr_scale, b1 = d->beta1 > 0 ? d->beta1 : 0.9, b2 = d->beta2 > 0 ? d->beta2 : 0.999;
    double eps = d->eps > 0 ? d->eps : 1e-8;
    for (int64_t i = 0; i < a->n; i++) {
        double gi = g[i] * factor, move;
        if (d->kind == TN_OPTIM_ADAMW) {
            a->m[i] = b1 * a->m[i] + (1 - b1) * gi;
            a->v[i] = b2 * a->v[i] + (1 - b2) * gi * gi;
            move = a->m[i] / (1 - pow(b1, (double)t)) / (sqrt(a->v[i] / (1 - pow(b2, (double)t))) + eps);
        } else {
            a->m[i] = d->momentum * a->m[i] + gi;
            move = d->nesterov ? gi + d->momentum * a->m[i] : a->m[i];
        }
        a->p[i] -= lr * d->weight_decay * a->decay_scale * a->p[i];
        a->p[i] -= lr * move;
    }
}

static double plain_clip(const tn_optim_desc *d, plain *const *a, const double *const *g, int count, double *norm)
{
    double sum = 0;
    for (int k = 0; k < count; k++)
        for (int64_t i = 0; i < a[k]->n; i++) sum += g[k][i] * g[k][i];
    *norm = sqrt(sum);
    return d->clip_norm > 0 && *norm > d->clip_norm ? d->clip_norm / *norm : 1;
}

enum { RULES = 9 };

static tn_optim_desc rule(int k)
{
    tn_optim_desc d = desc_of(k < 4 ? TN_OPTIM_ADAMW : TN_OPTIM_SGD, k == 0 || k == 4 ? 0 : 0.05, k % 2 ? 0.1 : 0);
    if (k == 2 || k == 3) { d.beta1 = 0.8; d.beta2 = 0.95; d.eps = 1e-3; }
    if (k > 4) d.momentum = 0.9;
    if (k > 6) d.nesterov = true;
    if (k == 3 || k == 8) d.clip_norm = 1.5;
    if (k == 1 || k == 7) { d.schedule.kind = TN_SCHEDULE_COSINE; d.schedule.warmup = 3; d.schedule.total = 9; d.schedule.floor = 0.1; }
    return d;
}

/* The factor of the rate at step t = 1, 2, ...: the one cosine of the rules above, worked out by hand. It has a warm-up of
   3 steps, and then falls to 0.1 in six steps of 30 degrees. */
static double plain_schedule(const tn_schedule *s, int64_t t)
{
    static const double cosine[] = {1.0 / 3, 2.0 / 3, 1, 1, 0.55 + 0.45 * 0.86602540378443865, 0.55 + 0.45 * 0.5, 0.55,
                                    0.55 - 0.45 * 0.5, 0.55 - 0.45 * 0.86602540378443865, 0.1};
    if (s->kind == TN_SCHEDULE_CONSTANT && s->warmup == 0) return 1;
    CHECK(s->kind == TN_SCHEDULE_COSINE && s->warmup == 3 && s->total == 9 && s->floor == (double)0.1 && t <= 10);
    return cosine[(t - 1) % 10];
}

/* Three parameters: one as it is, one that takes no decay, one with its own scales. */
static double ten_steps(tn_dtype dtype, const tn_optim_desc *d, const tn_backend *backend)
{
    static const char *const name[3] = {"w", "b", "head.w"};
    static const int64_t     size[3] = {35, 7, 1};
    world     w;
    plain     a[3], *all[3];
    double    g[3][MOST], v[MOST], worst = 0, norm;
    double    lr = d->lr > 0 ? d->lr : d->kind == TN_OPTIM_ADAMW ? 1e-3 : 1e-2;
    const double *gs[3];
    if (!open_on(&w, dtype, 5, 1, backend)) return 1;
    memset(a, 0, sizeof a);
    for (int k = 0; k < 3; k++) {
        tn_param *p = add_vector(&w, name[k], size[k]);
        if (k == 1) CHECK_INT(tn_params_set_scales(w.params, "b", 1, 0), 1);
        if (k == 2) CHECK_INT(tn_params_set_scales(w.params, "head.", 0.1, 3), 1);
        a[k].n = values_of(p->value, a[k].p);
        a[k].lr_scale = k == 2 ? 0.1 : 1;
        a[k].decay_scale = k == 0 ? 1 : k == 1 ? 0 : 3;
        all[k] = &a[k];
        gs[k] = g[k];
    }
    tn_optim *o = tn_optim_create(w.params, d);
    for (int64_t t = 1; t <= 10; t++) {
        double rate = lr * plain_schedule(&d->schedule, t);
        CHECK_NEAR(tn_optim_lr(o), rate, 2e-15 * rate);
        for (int k = 0; k < 3; k++) {
            any(&w, g[k], size[k], t % 3 ? 1 : 0.01);                 /* now and then below the clip norm */
            for (int64_t i = 0; i < size[k] && dtype == TN_F32; i++) g[k][i] = (double)(float)g[k][i];
        }
        CHECK_STATUS(give(&w, gs, 1), TN_OK);
        CHECK_STATUS(tn_optim_step(o), TN_OK);
        CHECK_INT(tn_optim_step_count(o), t);
        double factor = plain_clip(d, all, gs, 3, &norm);
        CHECK_NEAR(tn_optim_grad_norm(o), norm, norm * (dtype == TN_F64 ? 1e-14 : 1e-6));
        for (int k = 0; k < 3; k++) {
            tn_tensor *value = tn_params_at(w.params, k)->value;
            plain_step(d, all[k], g[k], factor, rate, t);
            values_of(value, v);
            double error = test_frobenius(v, a[k].p, size[k]);
            test_raise(&worst, error);
            values_of(value->grad, v);
            for (int64_t i = 0; i < size[k]; i++) CHECK(v[i] == 0);   /* zero afterwards */
        }
    }
    close_world(&w);
    return worst;
}

static void against_plain_loops_on(const tn_backend *backend, const char *what)
{
    for (size_t i = 0; i < 2; i++) {
        double worst = 0;
        for (int k = 0; k < RULES; k++) {
            tn_optim_desc d = rule(k);
            double        error = ten_steps(f64_f32[i], &d, backend);
            test_raise(&worst, error);
        }
        report_as(what, f64_f32[i], worst, 5e-15, 2e-6);
    }
}

TEST(against_plain_loops)              { against_plain_loops_on(NULL, "ten steps"); }
TEST(against_plain_loops_on_reference) { against_plain_loops_on(tn_reference_backend(), "ten steps, reference"); }

TEST(against_plain_loops_on_sealed)
{
#if SEALED
    against_plain_loops_on(sealed_cpu(), "ten steps, sealed");
    CHECK_INT(sealed_damaged(), 0);
#else
    SKIP("mmap", "this system has no mprotect");
#endif
}

/* PyTorch's, in double: tools/golden_optim.py */
static const double golden_after_ten[5][6] = {
    /* AdamW as it is */
    {-0.24714626519076427, 0.62607878593780231, 0.12248254872878643,
     -0.37138716170654279, 0.50064919700737187, -0.0024909016808509652},
    /* AdamW, lr 0.05, betas 0.8 0.95, eps 1e-3, decay 0.1 */
    {-0.1321529856018662, 0.63203882597372585, 0.0068336156976420339,
     -0.20732053921083951, 0.49296198323275819, -0.097205242775630932},
    /* SGD, lr 0.1 */
    {-0.21250000000000002, 0.61250000000000004, 0.062499999999999993,
     -0.32500000000000001, 0.5, -0.05000000000000001},
    /* SGD, lr 0.1, momentum 0.9 */
    {0.044893074050000085, 0.63633849586249991, -0.2595789482000001,
     0.1218802584500002, 0.68732197688749996, -0.27854638880000004},
    /* SGD, lr 0.1, momentum 0.75, Nesterov */
    {-0.11703202724456788, 0.58873387575149561, -0.11891160011291506,
     -0.12703652381896968, 0.56200913190841661, -0.15783760547637937},
};
TEST(golden)
{
    double worst = 0;
    for (int k = 0; k < 5; k++) {
        world         w;
        tn_optim_desc d = desc_of(k < 2 ? TN_OPTIM_ADAMW : TN_OPTIM_SGD, k == 0 ? 0 : k == 1 ? 0.05 : 0.1, k == 1 ? 0.1 : 0);
        double        v[MOST];
        if (k == 1) { d.beta1 = 0.8; d.beta2 = 0.95; d.eps = 1e-3; }
        d.momentum = k == 3 ? 0.9 : k == 4 ? 0.75 : 0;
        d.nesterov = k == 4;
        if (!open_world(&w, TN_F64, 1)) return;
        add_vector(&w, "p", 6);
        for (int i = 0; i < 6; i++) v[i] = ((7 * i + 3) % 11 - 5) / 8.0;
        tn_write(tn_params_at(w.params, 0)->value, TN_F64, v, 6);
        tn_optim *o = tn_optim_create(w.params, &d);
        for (int t = 0; t < 10; t++) {
            for (int i = 0; i < 6; i++) v[i] = ((5 * i + 3 * t + i * t) % 13 - 6) / 8.0;
            CHECK_STATUS(step_with(&w, o, v), TN_OK);
        }
        values_of(tn_params_at(w.params, 0)->value, v);
        double error = test_max_error(v, golden_after_ten[k], 6);
        test_raise(&worst, error);
        close_world(&w);
    }
    WORST("PyTorch's parameters after ten steps", worst, 2e-15);
}

/* ---- schedules --------------------------------------------------------------------- */

static tn_schedule schedule(tn_schedule_kind kind, int64_t warmup, int64_t total, double floor_)
{
    tn_schedule s = ZERO;
    s.kind = kind;
    s.warmup = warmup;
    s.total = total;
    s.floor = floor_;
    return s;
}

TEST(schedules)
{
    tn_schedule s = schedule(TN_SCHEDULE_CONSTANT, 0, 0, 0);
    CHECK_NEAR(tn_schedule_at(&s, 0), 1, 0);
    CHECK_NEAR(tn_schedule_at(&s, 1000000), 1, 0);
    CHECK_NEAR(tn_schedule_at(NULL, 5), 1, 0);
    s.warmup = 4;
    CHECK_NEAR(tn_schedule_at(&s, 0), 0.25, 0);
    CHECK_NEAR(tn_schedule_at(&s, 2), 0.75, 0);
    CHECK_NEAR(tn_schedule_at(&s, 3), 1, 0);
    CHECK_NEAR(tn_schedule_at(&s, 99), 1, 0);
    s = schedule(TN_SCHEDULE_COSINE, 10, 110, 0.2);
    CHECK_NEAR(tn_schedule_at(&s, 9), 1, 0);
    CHECK_NEAR(tn_schedule_at(&s, 10), 1, 0);
    CHECK_NEAR(tn_schedule_at(&s, 35), 0.2 + 0.8 * 0.85355339059327373, 1e-15);      /* (1 + cos 45 degrees)/2 */
    CHECK_NEAR(tn_schedule_at(&s, 60), 0.6, 1e-15);
    CHECK_NEAR(tn_schedule_at(&s, 110), 0.2, 1e-15);
    CHECK_NEAR(tn_schedule_at(&s, 100000), 0.2, 1e-15);
    s = schedule(TN_SCHEDULE_LINEAR, 0, 100, 0);
    CHECK_NEAR(tn_schedule_at(&s, 0), 1, 0);
    CHECK_NEAR(tn_schedule_at(&s, 25), 0.75, 1e-15);
    CHECK_NEAR(tn_schedule_at(&s, 99), 0.01, 1e-15);
    CHECK_NEAR(tn_schedule_at(&s, 100), 0, 1e-15);
    CHECK_NEAR(tn_schedule_at(&s, 101), 0, 1e-15);
    {   /* each step, and some after the last */
        static const double line[] = {0.2, 0.4, 0.6, 0.8, 1, 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.5, 0.5};
        static const double cosine[] = {0.5, 1, 1, 0.5 + 0.25 * 1.7320508075688773, 0.75, 0.5, 0.25,
                                        0.5 - 0.25 * 1.7320508075688773, 0, 0, 0};
        tn_schedule a = schedule(TN_SCHEDULE_LINEAR, 5, 10, 0.5), b = schedule(TN_SCHEDULE_COSINE, 2, 8, 0);
        tn_schedule none[2];
        none[0] = schedule(TN_SCHEDULE_LINEAR, 4, 4, 0.3);                           /* no step is left for the fall */
        none[1] = schedule(TN_SCHEDULE_COSINE, 4, 4, 0.3);
        for (int64_t t = 0; t < 13; t++) CHECK_NEAR(tn_schedule_at(&a, t), line[t], 2e-16);
        for (int64_t t = 0; t < 11; t++) CHECK_NEAR(tn_schedule_at(&b, t), cosine[t], 2e-16);
        for (int k = 0; k < 2; k++) {
            CHECK_NEAR(tn_schedule_at(&none[k], 2), 0.75, 0);
            CHECK_NEAR(tn_schedule_at(&none[k], 3), 1, 0);
            CHECK_NEAR(tn_schedule_at(&none[k], 4), 0.3, 2e-16);
            CHECK_NEAR(tn_schedule_at(&none[k], 5), 0.3, 2e-16);
        }
    }
    for (int64_t t = 11; t < 120; t++) {                                             /* never up again */
        tn_schedule c = schedule(TN_SCHEDULE_COSINE, 10, 110, 0.2);
        CHECK(tn_schedule_at(&c, t) <= tn_schedule_at(&c, t - 1));
    }
}

/* ---- groups, freezing ------------------------------------------------------------------ */

TEST(biases_and_gains_take_no_decay)
{
    world          w;
    tn_linear_desc ld = ZERO;
    tn_mlp_desc    md = ZERO;
    tn_norm_desc   nd = ZERO;
    tn_linear      l;
    tn_mlp         m;
    tn_norm        n;
    if (!open_world(&w, TN_F32, 1)) return;
    ld.bias = true;
    ld.in = md.in = nd.dim = 4;
    ld.out = md.hidden = 5;
    md.bias = md.out_bias = true;
    CHECK_STATUS(tn_linear_init(w.params, "a.l", &ld, &l), TN_OK);
    CHECK_STATUS(tn_mlp_init(w.params, "a.m", &md, &m), TN_OK);
    CHECK_STATUS(tn_norm_init(w.params, "b.n", &nd, &n), TN_OK);
    CHECK_INT(tn_params_count(w.params), 7);
    CHECK_INT(tn_params_elements(w.params), 20 + 5 + 40 + 10 + 20 + 4 + 4);
    for (int64_t i = 0; i < 7; i++) {
        static const char *const name[7] = {"a.l.w", "a.l.b", "a.m.w", "a.m.b", "a.m.p", "a.m.pb", "b.n.gain"};
        static const double      decay[7] = {1, 0, 1, 0, 1, 0, 0};
        tn_param *p = tn_params_at(w.params, i);
        CHECK_STR(p->name, name[i]);
        CHECK(p->decay_scale == decay[i] && p->lr_scale == 1 && !p->frozen);
        CHECK(tn_params_find(w.params, name[i]) == p);
    }
    CHECK(!tn_params_at(w.params, 7) && !tn_params_at(w.params, -1) && !tn_params_find(w.params, "a") && !tn_params_find(w.params, NULL));
    CHECK_INT(tn_params_set_scales(w.params, "a.m.", 0.1, 0.5), 4);
    CHECK(tn_params_find(w.params, "a.m.p")->lr_scale == (double)0.1 && tn_params_find(w.params, "a.m.p")->decay_scale == 0.5);
    CHECK(tn_params_find(w.params, "a.l.w")->lr_scale == 1);
    CHECK_INT(tn_params_set_scales(w.params, "", 1, 1), 7);
    CHECK_INT(tn_params_set_scales(w.params, "x", 1, 1), 0);
    CHECK_INT(tn_params_freeze(w.params, "a"), 6);
    CHECK_INT(tn_params_freeze(w.params, NULL), 0);
    CHECK(!tn_params_create(NULL) && !tn_params_ctx(NULL) && tn_params_count(NULL) == 0 && tn_params_elements(NULL) == 0);
    CHECK(tn_params_ctx(w.params) == w.ctx);
    close_world(&w);
}

TEST(a_group_s_scales_are_doubles)
{
    world     w;
    tn_optim_desc d = desc_of(TN_OPTIM_SGD, 1, 0);
    double    g[1] = {1}, before[MOST], after[MOST];
    if (!open_world(&w, TN_F64, 1)) return;
    add_vector(&w, "p", 1);
    tn_params_set_scales(w.params, "p", 0.1, 1);
    tn_optim *o = tn_optim_create(w.params, &d);
    values_of(tn_params_at(w.params, 0)->value, before);
    CHECK_STATUS(step_with(&w, o, g), TN_OK);
    values_of(tn_params_at(w.params, 0)->value, after);
    CHECK_NEAR(before[0] - after[0], 0.1, 1e-15);
    close_world(&w);
}

TEST(frozen_parameters)
{
    world     w;
    tn_optim_desc d = desc_of(TN_OPTIM_SGD, 1, 0.5);
    double    ones[3] = {1, 1, 1}, before[MOST], after[MOST], g[MOST];
    const double *both_of[2] = {ones, ones};
    if (!open_world(&w, TN_F64, 1)) return;
    tn_param *p = add_vector(&w, "p", 3);
    tn_param *q = add_vector(&w, "q", 3);
    tn_params_set_scales(w.params, "", 1, 0);
    tn_optim *o = tn_optim_create(w.params, &d);
    values_of(p->value, before);
    tn_params_freeze(w.params, "p");
    CHECK(p->frozen && !q->frozen);
    CHECK_STATUS(give(&w, both_of, 1), TN_OK);
    CHECK(p->value->grad == NULL && q->value->grad != NULL);                /* no memory for it */
    CHECK_STATUS(tn_optim_step(o), TN_OK);
    CHECK_NEAR(tn_optim_grad_norm(o), sqrt(3), 1e-15);                      /* nor a share of the norm */
    values_of(p->value, after);
    CHECK(memcmp(before, after, sizeof *before * 3) == 0);
    tn_params_thaw(w.params, "p");
    CHECK_STATUS(give(&w, both_of, 1), TN_OK);
    CHECK_STATUS(tn_optim_step(o), TN_OK);
    values_of(p->value, after);
    for (int i = 0; i < 3; i++) CHECK_NEAR(before[i] - after[i], 1, 1e-15);
    /* A gradient that waits is dropped when its parameter is frozen: it may not turn up later. */
    CHECK_STATUS(give(&w, both_of, 1), TN_OK);
    size_t live = w.heap.live;
    tn_params_freeze(w.params, "p");
    CHECK(p->value->grad == NULL && w.heap.live < live);
    CHECK_STATUS(tn_optim_step(o), TN_OK);
    tn_params_thaw(w.params, "p");
    CHECK_STATUS(give(&w, both_of, 1), TN_OK);
    values_of(p->value->grad, g);
    for (int i = 0; i < 3; i++) CHECK(g[i] == 1);
    /* All frozen: nothing leads to a parameter, and a step has nothing to do. */
    tn_params_freeze(w.params, "");
    FAILS(w.ctx, give(&w, both_of, 1), TN_ERR_ARG, "loss leads to no parameter");
    CHECK_STATUS(tn_optim_step(o), TN_OK);
    close_world(&w);
}

/* ---- gradients ------------------------------------------------------------------------- */

TEST(gradients_add_up)
{
    world     w;
    tn_optim_desc d = desc_of(TN_OPTIM_SGD, 1, 0);
    double    a[3] = {1, 2, 3}, b[3] = {0.5, -4, 1}, before[MOST], after[MOST], g[MOST];
    const double *ga = a, *gb = b;
    if (!open_world(&w, TN_F64, 1)) return;
    add_vector(&w, "p", 3);
    tn_optim *o = tn_optim_create(w.params, &d);
    values_of(tn_params_at(w.params, 0)->value, before);
    CHECK_STATUS(give(&w, &ga, 1), TN_OK);
    CHECK_STATUS(give(&w, &gb, 1), TN_OK);
    values_of(tn_params_at(w.params, 0)->value->grad, g);
    for (int i = 0; i < 3; i++) CHECK(g[i] == a[i] + b[i]);
    CHECK_STATUS(tn_optim_step(o), TN_OK);
    values_of(tn_params_at(w.params, 0)->value, after);
    for (int i = 0; i < 3; i++) CHECK_NEAR(after[i], before[i] - a[i] - b[i], 1e-15);
    CHECK_STATUS(tn_optim_step(o), TN_OK);                                  /* nothing new: stays */
    values_of(tn_params_at(w.params, 0)->value, before);
    CHECK(memcmp(before, after, sizeof *before * 3) == 0);
    CHECK_NEAR(tn_optim_grad_norm(o), 0, 0);
    close_world(&w);
}

/* After a step a gradient counts as zeros, however it is read or written; what the update has left in its memory is not
   seen. */
TEST(a_step_leaves_zeros)
{
    static const tn_optim_kind kind[] = {TN_OPTIM_ADAMW, TN_OPTIM_SGD, TN_OPTIM_MUON};
    for (int k = 0; k < 3; k++)
        for (int way = 0; way < 10; way++) {
            world         w;
            tn_optim_desc d = desc_of(kind[k], 0.1, 0);
            int64_t       shape[2] = {3, 2};
            tn_init       init = {TN_INIT_NORMAL, 0, 0, 0};
            tn_tensor    *t = NULL;
            double        given[6] = {1, -2, 3, 0.5, 7, 4}, more[6] = {1, 1, 2, 3, 5, 8}, v[MOST], want[6] = {0, 0, 0, 0, 0, 0};
            double        before[MOST];
            const double *ga = given, *gm = more;
            if (!open_world(&w, TN_F64, 1)) return;
            tn_tensor *p = tn_params_add(w.params, "p", 2, shape, init)->value;
            tn_optim  *o = tn_optim_create(w.params, &d);
            CHECK_STATUS(give(&w, &ga, 1), TN_OK);
            CHECK_STATUS(tn_optim_step(o), TN_OK);
            tn_ctx_reset(w.ctx);
            tn_tensor *g = p->grad;
            switch (way) {
            case 0: values_of(g, v); break;
            case 1: values_of(t = tn_add(w.ctx, g, g), v); break;
            case 2: values_of(t = tn_copy(w.ctx, tn_transpose(g, 0, 1)), v); break;
            case 3: t = tn_tensor_keep(g); values_of(t, v); tn_tensor_destroy(t); break;
            case 4:
                want[2] = want[3] = 9;
                CHECK_STATUS(tn_write(tn_slice(g, 0, 1, 2), TN_F64, want + 2, 2), TN_OK);
                values_of(g, v);
                break;
            case 5:
                want[1] = want[3] = want[5] = 4;
                t = tn_slice(g, 1, 1, 2);
                CHECK_STATUS(tn_assign(t, tn_full(w.ctx, 2, t->shape, 4)), TN_OK);
                values_of(g, v);
                break;
            case 6:                                                         /* the next pass overwrites ... */
                for (int i = 0; i < 6; i++) want[i] = more[i];
                CHECK_STATUS(give(&w, &gm, 1), TN_OK);
                values_of(g, v);
                break;
            case 7:                                                         /* ... or adds to a part of zeros */
                tn_record(w.ctx);
                CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, tn_slice(p, 0, 0, 1))), TN_OK);
                want[0] = want[1] = 1;
                values_of(g, v);
                break;
            case 8: {
                unsigned char file[1024];
                size_t        used = 0;
                CHECK_STATUS(tn_npy_write(g, tn_sink_memory(file, sizeof file, &used)), TN_OK);
                values_of(t = tn_npy_read(w.ctx, tn_source_memory(file, used)), v);
                tn_tensor_destroy(t);
                break;
            }
            default:                                                        /* a step with nothing new */
                d.kind = TN_OPTIM_SGD;
                tn_optim_destroy(o);
                o = tn_optim_create(w.params, &d);
                values_of(p, before);
                CHECK_STATUS(tn_optim_step(o), TN_OK);
                CHECK_NEAR(tn_optim_grad_norm(o), 0, 0);
                values_of(p, v);
                CHECK(memcmp(before, v, sizeof *v * 6) == 0);
                values_of(g, v);
            }
            CHECK(memcmp(v, want, sizeof want) == 0);
            close_world(&w);
        }
}

TEST(clipping_is_by_the_global_norm)
{
    world     w;
    tn_optim_desc d = desc_of(TN_OPTIM_SGD, 1, 0);
    double    a[2] = {3, 0}, b[1] = {4}, before[2][MOST], after[2][MOST];
    const double *g[2] = {a, b};
    if (!open_world(&w, TN_F64, 1)) return;
    d.clip_norm = 2;
    add_vector(&w, "a", 2);
    add_vector(&w, "b", 1);
    tn_optim *o = tn_optim_create(w.params, &d);
    CHECK_NEAR(tn_optim_grad_norm(o), 0, 0);                                /* before any step */
    for (int k = 0; k < 2; k++) values_of(tn_params_at(w.params, k)->value, before[k]);
    CHECK_STATUS(give(&w, g, 1), TN_OK);
    CHECK_STATUS(tn_optim_step(o), TN_OK);
    for (int k = 0; k < 2; k++) values_of(tn_params_at(w.params, k)->value, after[k]);
    CHECK_NEAR(tn_optim_grad_norm(o), 5, 0);                                /* before clipping */
    CHECK_NEAR(tn_item(tn_optim_grad_norm_view(o)), 5, 0);
    CHECK_NEAR(before[0][0] - after[0][0], 1.2, 1e-15);
    CHECK_NEAR(before[0][1] - after[0][1], 0, 0);
    CHECK_NEAR(before[1][0] - after[1][0], 1.6, 1e-15);
    a[0] = 1; b[0] = 1;                                                     /* below: as it is */
    CHECK_STATUS(give(&w, g, 1), TN_OK);
    CHECK_STATUS(tn_optim_step(o), TN_OK);
    for (int k = 0; k < 2; k++) values_of(tn_params_at(w.params, k)->value, before[k]);
    CHECK_NEAR(after[0][0] - before[0][0], 1, 1e-15);
    close_world(&w);
}

/* NaN and infinity, in each of two parameters: nothing moves, the message says where, and training goes on as if the
   step had never been. */
static void not_finite_on(const tn_backend *backend)
{
    for (int k = 0; k < 8; k++) {
        world     w, same;
        tn_optim_desc d = desc_of(k & 4 ? TN_OPTIM_SGD : TN_OPTIM_ADAMW, 0.1, 0.1);
        double    g[2][MOST], before[2][MOST], after[2][MOST], bad[MOST];
        const double *good[2] = {g[0], g[1]}, *broken[2] = {g[0], g[1]};
        d.momentum = k & 4 ? 0.9 : 0;
        d.clip_norm = k & 1 ? 1 : 0;
        if (!open_on(&w, f64_f32[k / 2 % 2], 3, 1, backend) || !open_on(&same, f64_f32[k / 2 % 2], 3, 1, backend)) return;
        for (int i = 0; i < 2; i++) { add_vector(&w, i ? "head.w" : "body.w", 20); add_vector(&same, i ? "head.w" : "body.w", 20); }
        tn_optim *o = tn_optim_create(w.params, &d);
        tn_optim *p = tn_optim_create(same.params, &d);
        for (int t = 0; t < 5; t++) {
            for (int i = 0; i < 2; i++) any(&w, g[i], 20, 1);
            CHECK_STATUS(give(&w, good, 1), TN_OK);
            CHECK_STATUS(tn_optim_step(o), TN_OK);
            CHECK_STATUS(give(&same, good, 1), TN_OK);
            CHECK_STATUS(tn_optim_step(p), TN_OK);
            if (t != 2) continue;
            memcpy(bad, g[k & 1], sizeof bad);
            bad[13] = k & 2 ? HUGE_VAL : (double)NAN;
            broken[k & 1] = bad;
            for (int i = 0; i < 2; i++) values_of(tn_params_at(w.params, i)->value, before[i]);
            CHECK_STATUS(give(&w, broken, 1), TN_OK);
            CHECK_STATUS(tn_optim_step(o), TN_ERR_NONFINITE);
            CHECK(strstr(tn_ctx_error(w.ctx), k & 1 ? "head.w" : "body.w") != NULL);
            CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "step 4:");
            CHECK_INT(tn_optim_step_count(o), 4);
            CHECK_STATUS(give(&w, broken, 1), TN_OK);                          /* and again: it is the next step by now */
            FAILS(w.ctx, tn_optim_step(o), TN_ERR_NONFINITE, "step 5:");
            for (int i = 0; i < 2; i++) {
                values_of(tn_params_at(w.params, i)->value, after[i]);
                CHECK(memcmp(before[i], after[i], sizeof **before * 20) == 0);
                values_of(tn_params_at(w.params, i)->value->grad, after[i]);
                for (int j = 0; j < 20; j++) CHECK(after[i][j] == 0);
            }
        }
        for (int i = 0; i < 2; i++) {
            values_of(tn_params_at(w.params, i)->value, before[i]);
            values_of(tn_params_at(same.params, i)->value, after[i]);
            CHECK(memcmp(before[i], after[i], sizeof **before * 20) == 0);
        }
        close_world(&same);
        close_world(&w);
    }
}

TEST(not_finite) { not_finite_on(NULL); }
TEST(not_finite_on_reference) { not_finite_on(tn_reference_backend()); }

/* Each of two optimisers names its own parameters, also when the other one is gone. */
TEST(two_optimisers)
{
    world      w;
    tn_optim_desc d = desc_of(TN_OPTIM_SGD, 0.1, 0);
    double     bad[1] = {(double)NAN};
    if (!open_world(&w, TN_F32, 1)) return;
    add_vector(&w, "mine", 1);
    tn_optim *first = tn_optim_create(w.params, &d);
    tn_params *more = w.params;
    w.params = tn_params_create(w.ctx);
    add_vector(&w, "theirs", 1);
    tn_optim *second = tn_optim_create(w.params, &d);
    FAILS(w.ctx, step_with(&w, second, bad), TN_ERR_NONFINITE, "gradient of theirs");
    w.params = more;
    FAILS(w.ctx, step_with(&w, first, bad), TN_ERR_NONFINITE, "gradient of mine");
    tn_optim_destroy(second);
    FAILS(w.ctx, step_with(&w, first, bad), TN_ERR_NONFINITE, "gradient of mine");
    close_world(&w);
}

/* Squares that float cannot hold are no obstacle; a norm that it cannot hold is one, and is told from a bad gradient. */
TEST(a_norm_that_overflows)
{
    world     w;
    tn_optim_desc d = desc_of(TN_OPTIM_SGD, 1, 0);
    double    a[1] = {3e25}, b[1] = {-4e25}, before[2][MOST], after[2][MOST];
    const double *g[2] = {a, b};
    if (!open_world(&w, TN_F32, 1)) return;
    d.clip_norm = 5;
    add_vector(&w, "a", 1);
    add_vector(&w, "b", 1);
    tn_optim *o = tn_optim_create(w.params, &d);
    for (int k = 0; k < 2; k++) values_of(tn_params_at(w.params, k)->value, before[k]);
    CHECK_STATUS(give(&w, g, 1), TN_OK);
    CHECK_STATUS(tn_optim_step(o), TN_OK);
    CHECK_NEAR(tn_optim_grad_norm(o) / 5e25, 1, 1e-6);
    for (int k = 0; k < 2; k++) values_of(tn_params_at(w.params, k)->value, after[k]);
    CHECK_NEAR(before[0][0] - after[0][0], 3, 1e-5);
    CHECK_NEAR(before[1][0] - after[1][0], -4, 1e-5);
    a[0] = b[0] = 3e38;
    CHECK_STATUS(give(&w, g, 1), TN_OK);
    FAILS(w.ctx, tn_optim_step(o), TN_ERR_NONFINITE, "step 2: the norm of the gradient");
    for (int k = 0; k < 2; k++) values_of(tn_params_at(w.params, k)->value, before[k]);
    CHECK(before[0][0] == after[0][0] && before[1][0] == after[1][0]);
    close_world(&w);
}

/* One gradient whose square no float holds, up to the largest one: the parameter moves as in double, then and later. Its first
   step is the one whose bias correction is largest. */
static void spike_on(const tn_backend *backend, tn_optim_kind kind)
{
    static const double size[] = {2e19, 1e25, -3.4e38};
    double worst = 0, g[MOST], v[MOST];
    for (int k = 0; k < 6; k++) {
        world         w;
        plain         a = ZERO;
        tn_optim_desc d = desc_of(kind, 0.05, 0.1), adamw = desc_of(TN_OPTIM_ADAMW, 0.05, 0.1);
        d.adam_lr = 0.05;
        if (!open_on(&w, TN_F32, 5, 1, backend)) return;
        a.n = values_of(add_vector(&w, "p", 37)->value, a.p);
        a.lr_scale = a.decay_scale = 1;
        tn_optim *o = tn_optim_create(w.params, &d);
        for (int64_t t = 1; t <= 12; t++) {
            any(&w, g, 37, 1);
            if (t == 1 + k / 3 * 4) g[k * 7] = size[k % 3];
            for (int i = 0; i < 37; i++) g[i] = (double)(float)g[i];
            CHECK_STATUS(step_with(&w, o, g), TN_OK);
            plain_step(&adamw, &a, g, 1, 0.05, t);
            values_of(tn_params_at(w.params, 0)->value, v);
            test_raise(&worst, test_max_error(v, a.p, 37));
        }
        close_world(&w);
    }
    WORST("twelve steps, one with a gradient beyond 2^63", worst, 2e-6);
}

TEST(a_gradient_whose_square_overflows)
{
    spike_on(NULL, TN_OPTIM_ADAMW);
    spike_on(NULL, TN_OPTIM_MUON);
    spike_on(tn_reference_backend(), TN_OPTIM_ADAMW);
}

/* A label outside its table spoils the loss: no update, and the next step is as if there had been none. */
TEST(a_bad_label)
{
    world     w;
    int32_t   label[2] = {1, 7};
    double    before[MOST], after[MOST];
    tn_optim_desc d = desc_of(TN_OPTIM_ADAMW, 0.1, 0.1);
    if (!open_world(&w, TN_F32, 1)) return;
    tn_tensor *p = add_vector(&w, "p", 8)->value;
    tn_optim *o = tn_optim_create(w.params, &d);
    values_of(p, before);
    for (int pass = 0; pass < 2; pass++) {
        tn_ctx_reset(w.ctx);
        tn_record(w.ctx);
        tn_tensor *logits = tn_reshape_2d(p, 2, 4);
        tn_tensor *labels = tn_tensor_1d(w.ctx, TN_I32, 2);
        tn_write(labels, TN_I32, label, 2);
        CHECK_STATUS(tn_backward(w.ctx, tn_cross_entropy(w.ctx, logits, labels)), TN_OK);
        CHECK_STATUS(tn_optim_step(o), pass == 0 ? TN_ERR_DATA : TN_OK);
        values_of(p, after);
        CHECK((memcmp(before, after, sizeof *before * 8) == 0) == (pass == 0));
        if (pass == 0) CHECK_ERROR(w.ctx, TN_ERR_DATA, "cross_entropy: element 1 of the labels is 7");
        label[1] = 3;
    }
    close_world(&w);
}

/* ---- a device that fails halfway through a step ------------------------------------ */

static tn_kernel row_that_fails;
static int       calls_until_it_fails;      /* 0: it does not */

static tn_status failing_row(void *state, const tn_call *c)
{
    if (c->kernel == row_that_fails && calls_until_it_fails > 0 && --calls_until_it_fails == 0) return TN_ERR_BACKEND;
    return tn_cpu_backend()->fn[c->kernel](state, c);
}

static bool gradient_is(world *w, int64_t i, const double *g)
{
    double v[MOST];
    values_of(tn_params_at(w->params, i)->value->grad, v);
    for (int k = 0; k < 6; k++) if (!(v[k] == (g ? g[k] : 0))) return false;
    return true;
}

/* What a step must do to one of the parameters below. The gradients of Muon have two elements in different rows and
   columns, so the polynomial acts on each of them alone. `moments_only`: the step fails between the momentum and the
   parameter. */
static void plain_muon(plain *a, const double *g, double lr, bool moments_only)
{
    double x[6], norm = 0;
    for (int i = 0; i < 6; i++) {
        a->m[i] = 0.95 * a->m[i] + 0.05 * g[i];
        x[i] = 0.05 * g[i] + 0.95 * a->m[i];
        norm += x[i] * x[i];
    }
    for (int i = 0; i < 6 && !moments_only; i++) {
        double s = x[i] / sqrt(norm);
        for (int k = 0; k < 5; k++) s *= 3.4445 + s * s * (-4.7750 + 2.0315 * s * s);
        a->p[i] -= lr * s;
    }
}

/* The step that ends at call `at` of a row: it has updated the parameters after the one whose row fails, since the last comes
   first. A step that fails before the first update has no effect and does not count; after that it counts. */
static bool plain_failure(const tn_optim_desc *d, tn_kernel row, int at, plain *a, double (*g)[6])
{
    const int reached = row == TN_KERNEL_GEMM ? 2 : 3 - at;
    if (row == TN_KERNEL_SUMSQ || row == TN_KERNEL_STEP_BEGIN) return false;
    for (int i = 2; i > reached; i--) {
        if (d->kind == TN_OPTIM_MUON) plain_muon(&a[i], g[i], d->lr, false);
        else plain_step(d, &a[i], g[i], 1, d->lr, 2);
    }
    if (row == TN_KERNEL_GEMM || row == TN_KERNEL_MUON_END) plain_muon(&a[reached], g[reached], d->lr, true);
    return true;
}

/* A failed step discards its gradients: the next step sees those of its own backward pass alone. */
TEST(a_device_that_fails_halfway)
{
    static const struct { tn_kernel row; tn_optim_kind kind; int calls; } fails[] = {
        {TN_KERNEL_SUMSQ, TN_OPTIM_ADAMW, 3}, {TN_KERNEL_STEP_BEGIN, TN_OPTIM_ADAMW, 1},
            {TN_KERNEL_ADAMW, TN_OPTIM_ADAMW, 3},
        {TN_KERNEL_SGD, TN_OPTIM_SGD, 3}, {TN_KERNEL_MUON_BEGIN, TN_OPTIM_MUON, 3}, {TN_KERNEL_GEMM, TN_OPTIM_MUON, 2},
        {TN_KERNEL_MUON_END, TN_OPTIM_MUON, 3}
    };
    static const int64_t shape[2] = {2, 3};
    tn_backend flaky = *tn_cpu_backend();
    double     worst_of_all = 0;
    flaky.name = "flaky";
    for (int k = 0; k < TN_KERNEL_COUNT; k++) if (flaky.fn[k]) flaky.fn[k] = failing_row;
    for (size_t k = 0; k < sizeof fails / sizeof *fails; k++)
        for (int at = 1; at <= fails[k].calls; at++) {          /* before, between and after the parameters' updates */
            world         w;
            tn_optim_desc d = desc_of(fails[k].kind, 0.5, 0);
            tn_init       init = ZERO;
            plain         a[3];
            double        v[2][3][6], after[MOST], worst = 0;
            const double *g[2][3];
            const int     failures = test_now.failures;
            memset(a, 0, sizeof a);
            init.rule = TN_INIT_NORMAL;
            if (!open_on(&w, TN_F64, 1, 1, &flaky)) return;
            for (int i = 0; i < 3; i++) {
                char name[16];
                snprintf(name, sizeof name, "p%d", i);
                CHECK(tn_params_add(w.params, name, 2, shape, init) != NULL);
                a[i].n = values_of(tn_params_at(w.params, i)->value, a[i].p);
                a[i].lr_scale = a[i].decay_scale = 1;
                for (int pass = 0; pass < 2; pass++) {
                    any(&w, v[pass][i], 6, 1);
                    for (int e = 0; e < 6 && d.kind == TN_OPTIM_MUON; e++) if (e != 1 && e != 5) v[pass][i][e] = 0;
                    g[pass][i] = v[pass][i];
                }
            }
            tn_optim *o = tn_optim_create(w.params, &d);
            CHECK_STATUS(give(&w, g[0], 1), TN_OK);
            CHECK_STATUS(tn_optim_step(o), TN_OK);               /* one that does not fail, so that moments exist */
            for (int i = 0; i < 3; i++) {
                if (d.kind == TN_OPTIM_MUON) plain_muon(&a[i], g[0][i], d.lr, false);
                else plain_step(&d, &a[i], g[0][i], 1, d.lr, 1);
            }
            CHECK_STATUS(give(&w, g[0], 1), TN_OK);
            row_that_fails = fails[k].row;
            calls_until_it_fails = at;
            CHECK_STATUS(tn_optim_step(o), TN_ERR_BACKEND);
            CHECK_INT(calls_until_it_fails, 0);
            CHECK_ERROR(w.ctx, TN_ERR_BACKEND, "backend flaky");
            for (int i = 0; i < 3; i++) CHECK(gradient_is(&w, i, NULL));
            bool counts = plain_failure(&d, fails[k].row, at, a, v[0]);
            CHECK_INT(tn_optim_step_count(o), counts ? 2 : 1);
            CHECK_STATUS(give(&w, g[1], 1), TN_OK);
            for (int i = 0; i < 3; i++) CHECK(gradient_is(&w, i, g[1][i]));
            CHECK_STATUS(tn_optim_step(o), TN_OK);
            CHECK_INT(tn_optim_step_count(o), counts ? 3 : 2);
            for (int i = 0; i < 3; i++) {
                if (d.kind == TN_OPTIM_MUON) plain_muon(&a[i], g[1][i], d.lr, false);
                else plain_step(&d, &a[i], g[1][i], 1, d.lr, counts ? 3 : 2);
                values_of(tn_params_at(w.params, i)->value, after);
                test_raise(&worst, test_frobenius(after, a[i].p, 6));
            }
            CHECK(worst <= 5e-15);
            test_raise(&worst_of_all, worst);
            if (test_now.failures > failures) printf("     %s, call %d\n", tn_kernel_name(fails[k].row), at);
            close_world(&w);
        }
    WORST("the step after a failure", worst_of_all, 5e-15);
}

/* A step after something failed moves nothing, so that one check of its status is enough. */
TEST(a_step_after_an_error)
{
    world     w;
    tn_optim_desc d = desc_of(TN_OPTIM_ADAMW, 0.1, 0.1);
    double    g[3] = {1, 1, 1}, before[MOST], after[MOST];
    const double *gs = g;
    if (!open_world(&w, TN_F32, 1)) return;
    add_vector(&w, "p", 3);
    tn_optim *o = tn_optim_create(w.params, &d);
    CHECK_STATUS(step_with(&w, o, g), TN_OK);
    values_of(tn_params_at(w.params, 0)->value, before);
    CHECK(tn_matmul(w.ctx, tn_params_at(w.params, 0)->value, NULL) == NULL);
    CHECK_STATUS(give(&w, &gs, 1), TN_ERR_ARG);
    CHECK_STATUS(tn_optim_step(o), TN_ERR_ARG);
    values_of(tn_params_at(w.params, 0)->value, after);
    CHECK(memcmp(before, after, sizeof *before * 3) == 0);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "matmul");
    CHECK_STATUS(step_with(&w, o, g), TN_OK);
    values_of(tn_params_at(w.params, 0)->value, after);
    CHECK(before[0] != after[0]);
    close_world(&w);
}

/* A parameter that comes later has its own moments, from zero, and its own bias correction; the others keep theirs. */
TEST(parameters_that_come_later)
{
    for (int kind = 0; kind < 2; kind++) {
        world     w;
        plain     a[20];
        tn_optim_desc d = desc_of(kind ? TN_OPTIM_SGD : TN_OPTIM_ADAMW, 0.1, 0);
        double    g[3] = {1, -2, 0.5}, v[MOST], worst = 0;
        const double *gs[20];
        memset(a, 0, sizeof a);
        d.momentum = kind ? 0.9 : 0;
        if (!open_world(&w, TN_F64, 1)) return;
        tn_optim *o = tn_optim_create(w.params, &d);
        CHECK_STATUS(tn_optim_step(o), TN_OK);                              /* none yet */
        for (int t = 0; t < 20; t++) {                                      /* more than fit the first room */
            char name[16];
            snprintf(name, sizeof name, "p%d", t);
            a[t].n = values_of(add_vector(&w, name, 3)->value, a[t].p);
            a[t].lr_scale = a[t].decay_scale = 1;
            gs[t] = g;
            CHECK_STATUS(give(&w, gs, 1), TN_OK);
            CHECK_STATUS(tn_optim_step(o), TN_OK);
            for (int k = 0; k <= t; k++) plain_step(&d, &a[k], g, 1, 0.1, t + 1 - k);
        }
        for (int k = 0; k < 20; k++) {
            values_of(tn_params_at(w.params, k)->value, v);
            double error = test_frobenius(v, a[k].p, 3);
            test_raise(&worst, error);
        }
        WORST(kind ? "late parameters, SGD" : "late parameters, AdamW", worst, 1e-15);
        close_world(&w);
    }
}

/* ---- training ---------------------------------------------------------------------------- */

static bool train(run *r, tn_optim_kind kind, int steps, int threads, const tn_backend *backend)
{
    tn_optim_desc d = desc_of(kind, kind == TN_OPTIM_ADAMW ? 0.02 : 0.15, 0);
    d.momentum = kind == TN_OPTIM_SGD ? 0.9 : 0;
    d.clip_norm = 5;
    d.schedule = schedule(TN_SCHEDULE_COSINE, 10, steps, 0.01);
    return learns(r, &d, 64, false, steps, threads, backend);
}

TEST(a_teacher_is_learnt)
{
    run r;
    if (!train(&r, TN_OPTIM_ADAMW, 1500, 1, NULL)) return;
    WORST("bilinear student, AdamW: last loss / first", r.last / r.first, 1e-12);
    CHECK_INT(r.allocations, 0);
    if (!train(&r, TN_OPTIM_SGD, 1500, 1, NULL)) return;
    WORST("bilinear student, SGD: last loss / first", r.last / r.first, 1e-12);
    CHECK_INT(r.allocations, 0);
}

TEST(same_bits_for_any_threads_and_twice)
{
    run first, again;
    for (int threads = 1; threads <= 3; threads++) {
        if (!train(threads == 1 ? &first : &again, TN_OPTIM_ADAMW, 60, threads, NULL)) return;
        if (threads > 1) CHECK(memcmp(first.w, again.w, sizeof first.w) == 0);
    }
    if (!train(&again, TN_OPTIM_ADAMW, 60, 1, NULL)) return;
    CHECK(memcmp(first.w, again.w, sizeof first.w) == 0 && first.last == again.last);
}

TEST(training_on_reference)
{
    run r, cpu;
    if (!train(&r, TN_OPTIM_ADAMW, 100, 1, tn_reference_backend()) || !train(&cpu, TN_OPTIM_ADAMW, 100, 1, NULL)) return;
    CHECK_INT(r.allocations, 0);
    WORST("100 steps, reference against cpu", test_frobenius(r.w, cpu.w, 2 * HIDDEN * IN), 3e-6);
}

/* ---- lives and deaths -------------------------------------------------------------------- */

TEST(destroyed_in_any_order)
{
    for (int order = 0; order < 4; order++) {
        world  w;
        double g[3] = {1, 2, 3};
        if (!open_world(&w, TN_F32, 1)) return;
        add_vector(&w, "p", 3);
        tn_optim *o = tn_optim_create(w.params, NULL);
        CHECK_STATUS(step_with(&w, o, g), TN_OK);
        if (order == 1) { tn_optim_destroy(o); tn_params_destroy(w.params); }
        if (order == 2) { tn_params_destroy(w.params); tn_optim_destroy(o); }
        if (order == 3) tn_params_destroy(w.params);
        tn_ctx_reset(w.ctx);
        CHECK_STATUS(tn_ctx_sync(w.ctx), TN_OK);
        close_world(&w);
    }
    tn_optim_destroy(NULL);
    tn_params_destroy(NULL);
}

TEST(defaults_and_bad_descs)
{
    world         w;
    int           nine = 9;                                                 /* which C++ does not let in by a cast */
    if (!open_world(&w, TN_F32, 1)) return;
    tn_optim *o = tn_optim_create(w.params, NULL);
    CHECK_NEAR(tn_optim_lr(o), 1e-3, 0);
    tn_optim_desc d = desc_of(TN_OPTIM_SGD, 0, 0);
    o = tn_optim_create(w.params, &d);
    CHECK_NEAR(tn_optim_lr(o), 1e-2, 0);
    CHECK_INT(tn_optim_step_count(o), 0);
    CHECK(tn_optim_create(NULL, NULL) == NULL);
    CHECK_STATUS(tn_optim_step(NULL), TN_ERR_ARG);
    CHECK(tn_optim_step_count(NULL) == 0 && tn_optim_lr(NULL) == 0 && tn_optim_grad_norm(NULL) != tn_optim_grad_norm(NULL));
#define BAD(change, part) do { \
        d = desc_of(TN_OPTIM_ADAMW, 0, 0); \
        change; \
        CHECK(tn_optim_create(w.params, &d) == NULL); \
        CHECK_ERROR(w.ctx, TN_ERR_ARG, part); } while (0)
    BAD(memcpy(&d.kind, &nine, sizeof d.kind), "optim: kind is 9, not a valid tn_optim_kind");
    BAD(d.lr = -1, "optim: lr is -1, expected a number > 0");
    BAD(d.lr = (double)NAN, "optim: lr is nan, expected a number > 0");
    BAD(d.lr = HUGE_VAL, "optim: lr is inf, expected a number > 0");
    BAD(d.beta1 = 1, "optim: beta1 is 1, expected a number > 0 and < 1");
    BAD(d.beta2 = -0.5, "optim: beta2 is -0.5, expected a number > 0 and < 1");
    BAD(d.eps = -1, "optim: eps is -1, expected a number > 0");
    BAD(d.eps = 1e-60, "optim: eps is 1e-60, expected a number > 0, in F32 from 1.17549e-38");        /* what F32 cannot hold */
    BAD(d.lr = 1e39, "optim: lr is 1e+39, expected a number > 0, in F32 from 1.17549e-38");
    BAD(d.clip_norm = 1e-320, "optim: clip_norm is 9.99989e-321, expected 0 or a number >= 1.17549e-38");
    BAD(d.weight_decay = -1, "optim: weight_decay is -1, expected a number >= 0");
    BAD(d.momentum = 1, "optim: momentum is 1, expected a number >= 0 and < 1");
    BAD(d.clip_norm = -2, "optim: clip_norm is -2, expected 0 or a number >= 1.17549e-38");
    BAD(memcpy(&d.schedule.kind, &nine, sizeof d.schedule.kind), "optim: schedule.kind is 9, not a valid tn_schedule_kind");
    BAD(d.schedule.warmup = -3, "optim: schedule.warmup is -3, expected 0 or more");
    /* the rate would be zero from the start */
    BAD(d.schedule.kind = TN_SCHEDULE_COSINE, "optim: schedule.total is 0, expected more than warmup = 0");
    BAD(d.schedule = schedule(TN_SCHEDULE_LINEAR, 10, 10, 0), "optim: schedule.total is 10, expected more than warmup = 10");
    BAD(d.schedule = schedule(TN_SCHEDULE_LINEAR, 0, 10, -1), "optim: schedule.floor is -1, expected 0 to 1");
    BAD(d.schedule = schedule(TN_SCHEDULE_LINEAR, 0, 10, (double)NAN), "optim: schedule.floor is nan, expected 0 to 1");
    close_world(&w);
}

/* Scales of a parameter that no number holds: the step is refused before anything moves. A clip norm beyond F32 clips nothing. */
TEST(scales_that_f32_cannot_hold)
{
    static const double scales[4][2] = {{1e300, 1}, {(double)NAN, 1}, {1, 1e60}, {1, 1}};
    world         w;
    tn_optim_desc d = desc_of(TN_OPTIM_MUON, 0.1, 0.1);
    double        g[1] = {1}, before[MOST], after[MOST];
    if (!open_world(&w, TN_F32, 1)) return;
    d.clip_norm = 1e300;
    add_vector(&w, "p", 1);
    tn_optim *o = tn_optim_create(w.params, &d);
    values_of(tn_params_at(w.params, 0)->value, before);
    for (int k = 0; k < 4; k++) {
        CHECK_INT(tn_params_set_scales(w.params, "p", scales[k][0], scales[k][1]), 1);
        CHECK_STATUS(step_with(&w, o, g), k < 3 ? TN_ERR_ARG : TN_OK);
        if (k < 3) CHECK_ERROR(w.ctx, TN_ERR_ARG, "optim: the scales of p are");
        values_of(tn_params_at(w.params, 0)->value, after);
        CHECK((before[0] == after[0]) == (k < 3));
    }
    close_world(&w);
}

/* ---- init rules ---------------------------------------------------------------------------- */

typedef struct moments { double mean, std, low, high; } moments;

static moments moments_of(const tn_tensor *t)
{
    int64_t n = tn_tensor_count(t);
    double *v = doubles(n), sum = 0, squares = 0;
    moments m = ZERO;
    CHECK(tn_read(t, TN_F64, v, n) == TN_OK);
    m.low = m.high = v[0];
    for (int64_t i = 0; i < n; i++) {
        sum += v[i];
        if (v[i] < m.low) m.low = v[i];
        if (v[i] > m.high) m.high = v[i];
    }
    m.mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (v[i] - m.mean) * (v[i] - m.mean);
    m.std = sqrt(squares / (double)n);
    return m;
}

/* Mean zero, the standard deviation of a normal or of a uniform of half width `scale`, within four standard errors or so. */
static void check_init(const tn_tensor *t, double scale, bool uniform)
{
    moments m = moments_of(t);
    double  n = (double)tn_tensor_count(t), std = uniform ? scale / sqrt(3) : scale;
    CHECK_NEAR(m.mean / std, 0, 4.5 / sqrt(n));
    CHECK_NEAR(m.std / std, 1, 4.5 / sqrt(2 * n));
    if (uniform) CHECK(m.low >= -scale * (1 + 1e-6) && m.high <= scale * (1 + 1e-6) && m.high > 0.99 * scale && m.low < -0.99 * scale);
    else CHECK(m.high > 3 * std && m.low < -3 * std);
}

TEST(init_rules)
{
    world   w;
    int64_t shape[3] = {2, 50, 200}, none = 10000;
    tn_init i = ZERO;
    if (!open_world(&w, TN_F32, 1)) return;
#define INIT(name, rule_, std_, in, out) \
    (i.rule = rule_, i.std = std_, i.fan_in = in, i.fan_out = out, tn_params_add(w.params, name, 3, shape, i)->value)
    check_init(INIT("normal", TN_INIT_NORMAL, 0, 0, 0), 1 / sqrt(200), false);
    check_init(INIT("uniform", TN_INIT_UNIFORM, 0, 0, 0), 1 / sqrt(200), true);
    check_init(INIT("glorot", TN_INIT_GLOROT, 0, 0, 0), sqrt(6.0 / 250), true);
    check_init(INIT("he", TN_INIT_HE, 0, 0, 0), sqrt(2.0 / 200), false);
    check_init(INIT("fan in", TN_INIT_HE, 0, 8, 0), 0.5, false);
    check_init(INIT("fans", TN_INIT_GLOROT, 0, 8, 16), 0.5, true);
    check_init(INIT("std", TN_INIT_NORMAL, 3, 0, 0), 3, false);
    check_init(INIT("width", TN_INIT_UNIFORM, 3, 0, 0), 3, true);
    i.rule = TN_INIT_NORMAL; i.std = 0; i.fan_in = i.fan_out = 0;
    check_init(tn_params_add(w.params, "vector", 1, &none, i)->value, 0.01, false);
    CHECK(moments_of(INIT("zero", TN_INIT_ZERO, 0, 0, 0)).high == 0 && moments_of(INIT("none", TN_INIT_DEFAULT, 0, 0, 0)).high == 0);
    CHECK(moments_of(INIT("one", TN_INIT_ONE, 0, 0, 0)).low == 1 && moments_of(tn_params_find(w.params, "one")->value).high == 1);
    i.rule = (tn_init_rule)7;
    REFUSED(w.ctx, tn_params_add(w.params, "what", 3, shape, i), TN_ERR_ARG, "rule is 7, not a valid tn_init_rule");
    CHECK(tn_params_find(w.params, "what") == NULL);
    close_world(&w);
}

TEST(init_of_the_layers)
{
    world             w;
    tn_linear_desc    ld = ZERO;
    tn_mlp_desc       md = ZERO;
    tn_embedding_desc ed = ZERO;
    tn_norm_desc      nd = ZERO;
    tn_linear         l;
    tn_mlp            m;
    tn_embedding      e;
    tn_norm           n;
    if (!open_world(&w, TN_F32, 1)) return;
    ld.bias = true;
    ld.in = 100; ld.out = 2000;
    CHECK_STATUS(tn_linear_init(w.params, "l", &ld, &l), TN_OK);
    check_init(l.w, 0.1, true);
    check_init(l.b, 0.1, true);
    ld.augmented = true;
    ld.bias = false;
    CHECK_STATUS(tn_linear_init(w.params, "augmented", &ld, &l), TN_OK);
    CHECK(l.w->shape[1] == 101 && !l.b);
    check_init(l.w, 0.1, true);                                             /* the one does not count */
    ld.augmented = false;
    ld.bias = true;
    ld.init.rule = TN_INIT_HE;
    CHECK_STATUS(tn_linear_init(w.params, "he", &ld, &l), TN_OK);
    check_init(l.w, sqrt(2.0 / 100), false);
    CHECK(moments_of(l.b).std == 0 && moments_of(l.b).mean == 0);
    ed.count = 500; ed.dim = 40;
    CHECK_STATUS(tn_embedding_init(w.params, "e", &ed, &e), TN_OK);
    check_init(e.w, 1, false);
    nd.dim = 30;
    CHECK_STATUS(tn_norm_init(w.params, "n", &nd, &n), TN_OK);
    CHECK(moments_of(n.gain).low == 1 && moments_of(n.gain).high == 1 && n.desc.eps == (double)1e-5);
    nd.no_gain = true;
    CHECK_STATUS(tn_norm_init(w.params, "n2", &nd, &n), TN_OK);
    CHECK(n.gain == NULL);
    md.in = 64; md.hidden = 900; md.out = 20; md.bias = md.out_bias = true;
    CHECK_STATUS(tn_mlp_init(w.params, "m", &md, &m), TN_OK);
    CHECK(m.w->rank == 3 && m.w->shape[0] == 2 && m.w->shape[1] == 900 && m.w->shape[2] == 64);
    check_init(m.w, 0.125, true);
    check_init(m.b, 0.125, true);
    check_init(m.p, 1.0 / 30, true);
    CHECK(moments_of(m.pb).high <= 1.0 / 30);
    md.init.rule = TN_INIT_GLOROT;
    md.kind = TN_MLP_RELU;
    CHECK_STATUS(tn_mlp_init(w.params, "m2", &md, &m), TN_OK);
    CHECK(m.w->shape[0] == 1 && tn_mlp_encoders(TN_MLP_RELU) == 1 && tn_mlp_encoders(TN_MLP_SWIGLU) == 2);
    check_init(m.w, sqrt(6.0 / 964), true);
    CHECK_STR(tn_mlp_kind_name(TN_MLP_BILINEAR), "bilinear");
    CHECK_STR(tn_mlp_kind_name((tn_mlp_kind)15), "?");
    close_world(&w);
}

/* The same numbers for any number of threads and on each backend's uniforms; others for another seed and the next parameter. */
TEST(init_depends_on_the_seed_alone)
{
    double first[4][MOST];
    for (int k = 0; k < 5; k++) {
        world   w;
        double  v[2][MOST], next[MOST];
        tn_init i = ZERO;
        int64_t n = 50000;
        if (!open_on(&w, TN_F32, k == 3 ? 8 : 7, k == 1 ? 2 : 1, k == 2 ? tn_reference_backend() : NULL)) return;
        i.rule = TN_INIT_UNIFORM;
        tn_param *big = tn_params_add(w.params, "big", 1, &n, i);
        values_of(tn_slice(big->value, 0, n - MOST, n), v[0]);
        values_of(add_vector(&w, "normal", MOST)->value, v[1]);
        values_of(add_vector(&w, "next", MOST)->value, next);
        CHECK(memcmp(v[1], next, sizeof next) != 0);
        if (k == 0) memcpy(first, v, sizeof v);
        else if (k == 3) CHECK(memcmp(first, v, sizeof *v) != 0);
        else {
            CHECK(memcmp(first[0], v[0], sizeof *v) == 0);
            if (k == 2) CHECK_NEAR(test_max_error(first[1], v[1], MOST), 0, 1e-6);
            else CHECK(memcmp(first[1], v[1], sizeof *v) == 0);
        }
        close_world(&w);
    }
}

/* ---- layers that cannot be ------------------------------------------------------------------ */

TEST(bad_parameters)
{
    world   w;
    tn_init i = ZERO;
    int64_t shape[2] = {2, 3}, negative[2] = {2, -3}, huge[2] = {INT64_MAX / 2, 9};
    if (!open_world(&w, TN_F32, 1)) return;
    CHECK(tn_params_add(w.params, "blocks.0.w", 2, shape, i) != NULL);
    REFUSED(w.ctx, tn_params_add(w.params, "blocks.0.w", 2, shape, i), TN_ERR_ARG, "blocks.0.w");
    REFUSED(w.ctx, tn_params_add(w.params, "", 2, shape, i), TN_ERR_ARG, "the name of a parameter is empty");
    REFUSED(w.ctx, tn_params_add(w.params, NULL, 2, shape, i), TN_ERR_ARG, "the name of a parameter is NULL");
    REFUSED(w.ctx, tn_params_add(w.params, "n", 2, negative, i), TN_ERR_SHAPE, "[2,-3]");
    REFUSED(w.ctx, tn_params_add(w.params, "h", 2, huge, i), TN_ERR_SHAPE, "does not fit");
    REFUSED(w.ctx, tn_params_add(w.params, "r", 9, shape, i), TN_ERR_SHAPE, "rank is 9, expected 0 to 8");
    CHECK(tn_params_add(NULL, "x", 2, shape, i) == NULL);
    CHECK_INT(tn_params_count(w.params), 1);
    close_world(&w);
}

static bool all_zero(const void *p, size_t bytes)
{
    const char *c = (const char *)p;
    while (bytes > 0 && c[bytes - 1] == 0) bytes--;
    return bytes == 0;
}

/* Every refusal has a message, leaves no parameter behind and a layer of zeros, so that forward of it fails softly. */
TEST(bad_layers)
{
    world             w;
    tn_linear_desc    ld;
    tn_mlp_desc       md;
    tn_embedding_desc ed;
    tn_norm_desc      nd;
    tn_linear         l;
    tn_mlp            m;
    tn_embedding      e;
    tn_norm           n;
    char              name[400];
    if (!open_world(&w, TN_F32, 1)) return;
#define LINEAR(change, status, part) do { \
        memset(&ld, 0, sizeof ld); ld.in = 3; ld.out = 4; change; \
        CHECK_STATUS(tn_linear_init(w.params, "l", &ld, &l), status); CHECK_ERROR(w.ctx, status, part); \
        CHECK(all_zero(&l, sizeof l)); CHECK_INT(tn_params_count(w.params), 0); } while (0)
#define MLP(change, status, part) do { \
        memset(&md, 0, sizeof md); md.in = 3; md.hidden = 4; change; \
        CHECK_STATUS(tn_mlp_init(w.params, "m", &md, &m), status); CHECK_ERROR(w.ctx, status, part); \
        CHECK(all_zero(&m, sizeof m)); CHECK_INT(tn_params_count(w.params), 0); } while (0)
    LINEAR(ld.in = 0, TN_ERR_SHAPE, "linear l: in is 0, expected 1 to 2^31 - 2");
    LINEAR(ld.out = -2, TN_ERR_SHAPE, "linear l: out is -2, expected 1 to 2^31 - 2");
    LINEAR((ld.augmented = ld.bias = true), TN_ERR_ARG, "a bias is true, expected false with augmented");
    LINEAR(ld.init.rule = (tn_init_rule)7, TN_ERR_ARG, "rule is 7, not a valid tn_init_rule");
    MLP(md.hidden = 0, TN_ERR_SHAPE, "mlp m: hidden is 0, expected 1 to 2^31 - 2");
    MLP(md.kind = (tn_mlp_kind)15, TN_ERR_ARG, "mlp m: kind is 15, not a valid tn_mlp_kind");
    MLP(md.out = -1, TN_ERR_SHAPE, "out is -1");
    MLP((md.no_projection = true, md.out = 3), TN_ERR_SHAPE, "mlp m: out is 3, expected hidden = 4, as there is no");
    MLP((md.no_projection = md.out_bias = true), TN_ERR_ARG, "out_bias");
    MLP((md.residual = true, md.out = 5), TN_ERR_SHAPE, "out is 5, expected in = ");
    MLP((md.augmented = md.bias = true), TN_ERR_ARG, "augmented");
    MLP(md.init_out.rule = (tn_init_rule)7, TN_ERR_ARG, "rule is 7, not a valid tn_init_rule");
    memset(&ed, 0, sizeof ed);
    FAILS(w.ctx, tn_embedding_init(w.params, "e", &ed, &e), TN_ERR_SHAPE, "embedding e: count is 0, expected 1 to 2^31 - 2");
    memset(&nd, 0, sizeof nd);
    FAILS(w.ctx, tn_norm_init(w.params, NULL, &nd, &n), TN_ERR_SHAPE, "norm");
    memset(&ld, 0, sizeof ld);
    FAILS(w.ctx, tn_linear_init(w.params, "l", &ld, NULL), TN_ERR_ARG, "linear");
    FAILS(w.ctx, tn_mlp_init(w.params, "l", NULL, &m), TN_ERR_ARG, "mlp");
    ld.in = ld.out = 2;
    CHECK_STATUS(tn_linear_init(NULL, "l", &ld, &l), TN_ERR_ARG);
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    FAILS(w.ctx, tn_linear_init(w.params, name, &ld, &l), TN_ERR_ARG, "too long");
    memset(&l, 0, sizeof l);
    REFUSED(w.ctx, tn_linear_forward(w.ctx, &l, tn_tensor_2d(w.ctx, TN_REAL, 2, 2)), TN_ERR_ARG, "NULL");
    CHECK(!tn_linear_forward(w.ctx, NULL, NULL) && !tn_mlp_forward(w.ctx, NULL, NULL) && !tn_norm_forward(NULL, &n, NULL));
    tn_ctx_clear_error(w.ctx);
    close_world(&w);
}

/* A layer whose second parameter cannot be made is not made at all; and the status is of this call. */
TEST(half_a_layer)
{
    world          w;
    tn_linear_desc d = ZERO;
    tn_linear      l;
    tn_init        i = ZERO;
    int64_t        one = 1;
    d.bias = true;
    if (!open_world(&w, TN_F32, 1)) return;
    CHECK(tn_params_add(w.params, "l.b", 1, &one, i) != NULL);
    d.in = d.out = 3;
    CHECK_STATUS(tn_linear_init(w.params, "l", &d, &l), TN_ERR_ARG);
    CHECK_INT(tn_params_count(w.params), 1);
    CHECK(tn_params_find(w.params, "l.w") == NULL && all_zero(&l, sizeof l));
    CHECK_STATUS(tn_linear_init(w.params, "k", &d, &l), TN_OK);             /* while the error is still held */
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "l.b");
    close_world(&w);
}

/* ---- no memory -------------------------------------------------------------------------------- */

/* Allocation k fails: an error, nothing lost, and when memory is there again training goes on. */
TEST(no_memory)
{
    uint64_t last = 0;
    for (uint64_t k = 1; k < 1000 && !last; k++) {
        test_heap     heap = ZERO;
        tn_desc       desc = ZERO;
        tn_ctx       *ctx;
        tn_optim     *o = NULL;
        tn_mlp_desc   d = ZERO;
        tn_mlp        m;
        tn_optim_desc od = desc_of(TN_OPTIM_ADAMW, 0.1, 0);
        heap.fail_at = k;
        desc.allocator = test_heap_allocator(&heap);
        desc.threads = 1;
        desc.arena_bytes = 1024;
        d.in = d.hidden = 8;
        d.bias = d.out_bias = true;
        if (tn_ctx_create(&desc, &ctx, NULL) == TN_OK) {
            bool       made = false;
            tn_params *params;
            for (int attempt = 0; attempt < 6; attempt++) {
                if (attempt == 0) params = tn_params_create(ctx);
                if (!params) params = tn_params_create(ctx);
                if (params && !made) made = tn_mlp_init(params, "m", &d, &m) == TN_OK;
                if (made && !o) o = tn_optim_create(params, &od);
                if (!o) { CHECK_ERROR(ctx, TN_ERR_MEMORY, "memory"); continue; }
                tn_ctx_reset(ctx);
                tn_record(ctx);
                tn_status s = tn_backward(ctx, tn_sum(ctx, tn_mlp_forward(ctx, &m, tn_full(ctx, 1, &d.in, 1))));
                if (s == TN_OK) s = tn_optim_step(o);
                if (attempt == 5) CHECK_STATUS(s, TN_OK);
                if (s != TN_OK) CHECK_ERROR(ctx, TN_ERR_MEMORY, "memory");
            }
            CHECK(o && tn_params_count(params) == 4);
            if (heap.count < k) last = k;
            tn_ctx_destroy(ctx);
        }
        CHECK_INT(heap.live, 0);
        CHECK_INT(heap.blocks, 0);
    }
    CHECK(last > 30);
}

TEST_MAIN(against_plain_loops, against_plain_loops_on_reference, against_plain_loops_on_sealed, golden, schedules,
          biases_and_gains_take_no_decay, a_group_s_scales_are_doubles, frozen_parameters, gradients_add_up,
          a_step_leaves_zeros, clipping_is_by_the_global_norm, not_finite, not_finite_on_reference, two_optimisers,
          a_norm_that_overflows, a_gradient_whose_square_overflows, a_bad_label, a_device_that_fails_halfway,
          a_step_after_an_error, parameters_that_come_later, a_teacher_is_learnt, same_bits_for_any_threads_and_twice,
          training_on_reference, destroyed_in_any_order, defaults_and_bad_descs,
          scales_that_f32_cannot_hold, init_rules, init_of_the_layers,
          init_depends_on_the_seed_alone, bad_parameters, bad_layers, half_a_layer, no_memory)
