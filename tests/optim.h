/* optim.h: what tests of optimisers share. A gradient is set by backward through sum(p (x) g): it is g, to the bit. MOST is the
   number of elements of a parameter, where a test keeps copies. */

#ifndef TN_TEST_OPTIM_H
#define TN_TEST_OPTIM_H

#include "kit.h"

static inline tn_param *add(world *w, const char *name, int rank, const int64_t *shape)
{
    tn_init init = ZERO;
    init.rule = TN_INIT_NORMAL;
    tn_param *p = tn_params_add(w->params, name, rank, shape, init);
    CHECK(p != NULL);
    return p;
}

static inline int64_t values_of(const tn_tensor *t, double *v)
{
    int64_t n = tn_tensor_count(t);
    CHECK(n <= MOST && tn_read(t, TN_F64, v, n) == TN_OK);
    return n;
}

/* Adds factor g[i] to the gradient of the i-th parameter that is not frozen; NULL: none. */
static inline tn_status give(world *w, const double *const *g, double factor)
{
    tn_tensor *loss = NULL;
    tn_ctx_reset(w->ctx);
    tn_record(w->ctx);
    for (int64_t i = 0; i < tn_params_count(w->params); i++) {
        tn_tensor *p = tn_params_at(w->params, i)->value;
        if (!g[i]) continue;
        tn_tensor *t = tn_tensor_nd(w->ctx, TN_REAL, p->rank, p->shape);
        tn_write(t, TN_F64, g[i], tn_tensor_count(p));
        tn_tensor *product = tn_sum(w->ctx, tn_mul(w->ctx, p, t));
        loss = loss ? tn_add(w->ctx, loss, product) : product;
    }
    return tn_backward(w->ctx, tn_scale(w->ctx, loss, factor));
}

static inline void any(world *w, double *v, int64_t n, double scale)
{
    for (int64_t i = 0; i < n; i++) v[i] = scale * test_random_real(&w->seed);
}

/* ---- training ------------------------------------------------------------------------------- */

enum { IN = 6, HIDDEN = 12, OUT = 3 };

typedef struct run { double first, last; uint64_t allocations; double w[2 * HIDDEN * IN]; } run;

/* A bilinear layer learns another one of half its width from so many random inputs per step. */
static inline bool learns(run *r, const tn_optim_desc *od, int64_t rows, bool bias, int steps, int threads, const tn_backend *backend)
{
    world         w;
    tn_mlp        student, teacher;
    tn_mlp_desc   d = ZERO;
    tn_optim     *o;
    const int64_t shape[2] = {rows, IN};
    memset(r, 0, sizeof *r);
    d.in = IN; d.out = OUT; d.hidden = HIDDEN / 2;
    d.init.rule = d.init_out.rule = TN_INIT_NORMAL;
    if (!open_on(&w, TN_F32, 9, threads, backend)) return false;
    tn_params *fixed = tn_params_create(w.ctx);
    if (!CHECK_STATUS(tn_mlp_init(fixed, "teacher", &d, &teacher), TN_OK)) return false;
    tn_params_freeze(fixed, "");
    d.hidden = HIDDEN;
    d.bias = bias;
    if (!CHECK_STATUS(tn_mlp_init(w.params, "student", &d, &student), TN_OK)) return false;
    if (!CHECK((o = tn_optim_create(w.params, od)) != NULL)) return false;
    for (int t = 0; t < steps; t++) {
        tn_ctx_reset(w.ctx);
        tn_record(w.ctx);
        tn_tensor *x = tn_normal(w.ctx, 2, shape, 0, 1);
        tn_tensor *loss = tn_mse(w.ctx, tn_mlp_forward(w.ctx, &student, x), tn_mlp_forward(w.ctx, &teacher, x));
        if (!CHECK_STATUS(tn_backward(w.ctx, loss), TN_OK) || !CHECK_STATUS(tn_optim_step(o), TN_OK)) return false;
        if (t == 0) r->first = tn_item(loss);
        if (t == 2) r->allocations = tn_ctx_memory(w.ctx).allocations;
        if (t == steps - 1) r->last = tn_item(loss);
    }
    r->allocations = tn_ctx_memory(w.ctx).allocations - r->allocations;
    CHECK(teacher.w->grad == NULL);
    tn_read(student.w, TN_F64, r->w, 2 * HIDDEN * IN);
    close_world(&w);
    return true;
}

#endif
