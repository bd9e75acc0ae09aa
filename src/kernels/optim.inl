#if TNI_BITS == 32
/* ---- the optimisers, see >>op-optim --------------------------------------- >>pass-optim
   Calls of a series (one kernel for each parameter, i1 calls before it and i2 after it) are collected and run in one region
   when the last comes, or when the list is full, so that threads share small parameters as they share large ones. The
   tasks of a parameter, and so the order of its sum, do not depend on the others. */
TNI_FAST void TNI_T(adamw_part)(const tni_update *u, int64_t begin, int64_t end)
{
    const float *s = u->scalars, *g = u->x[1];
    float       *w = u->x[0], *m = u->x[2], *v = u->x[3];
    const double b1 = u->f[0], b2 = u->f[1], t = (double)s[TNI_STEP] - u->f[5], rate = (double)s[TNI_LR] * u->f[4];
    const TNI_V  keep1 = TNI_SET((float)b1), take1 = TNI_SET((float)(1 - b1));
    const TNI_V  keep2 = TNI_SET((float)b2), take2 = TNI_SET((float)(1 - b2));
    const TNI_V  unbias1 = TNI_SET((float)(1 / (1 - pow(b1, t))));
    const TNI_V  unbias2 = TNI_SET((float)(1 / (1 - pow(b2, t))));
    const TNI_V  eps = TNI_SET((float)u->f[2]), decay = TNI_SET((float)u->f[3]), down = TNI_SET((float)-rate);
    const TNI_V  factor = TNI_SET(s[TNI_FACTOR]), most = TNI_SET(TNI_ADAMW_LARGEST), least = TNI_SET(-TNI_ADAMW_LARGEST);
    int64_t      i;
    for (i = begin; s[TNI_SKIP] == 0 && i < end; i += TNI_W) {
        int   k = TNI_T(lanes)(end - i);
        TNI_V wi = TNI_LOAD(w + i, k), d = TNI_MIN(most, TNI_MAX(least, TNI_LOAD(g + i, k) * factor));
        TNI_V mi = TNI_FMA(take1, d, keep1 * TNI_LOAD(m + i, k));
        TNI_V vi = TNI_FMA(take2 * d, d, keep2 * TNI_LOAD(v + i, k));
        TNI_STORE(m + i, mi, k);
        TNI_STORE(v + i, vi, k);
        mi = mi * unbias1 / (TNI_SQRT(vi * unbias2) + eps);
        TNI_STORE(w + i, TNI_FMA(down, TNI_FMA(decay, wi, mi), wi), k);
    }
}

TNI_FAST void TNI_T(sgd_part)(const tni_update *u, int64_t begin, int64_t end)
{
    const float *s = u->scalars, *g = u->x[1];
    float       *w = u->x[0], *m = u->x[2];
    const bool   nesterov = u->f[1] != 0;
    const TNI_V  mu = TNI_SET((float)u->f[0]), decay = TNI_SET((float)u->f[3]);
    const TNI_V  down = TNI_SET((float)(-(double)s[TNI_LR] * u->f[4]));
    const TNI_V  factor = TNI_SET(s[TNI_FACTOR]);
    for (int64_t i = begin; s[TNI_SKIP] == 0 && i < end; i += TNI_W) {
        int   k = TNI_T(lanes)(end - i);
        TNI_V wi = TNI_LOAD(w + i, k), d = TNI_LOAD(g + i, k) * factor, mi = d;
        if (m) {
            mi = TNI_FMA(mu, TNI_LOAD(m + i, k), d);
            TNI_STORE(m + i, mi, k);
        }
        if (nesterov) mi = TNI_FMA(mu, mi, d);
        TNI_STORE(w + i, TNI_FMA(down, TNI_FMA(decay, wi, mi), wi), k);
    }
}

TNI_FAST void TNI_T(series_task)(void *arg, int64_t task, int worker)
{
    tni_cpu          *cpu = (tni_cpu *)arg;
    const tni_update *u = &cpu->update[cpu->updates - 1];
    (void)worker;
    while (u->first > task) u--;
    int64_t begin = (task - u->first) * u->share, end = tni_min(u->n, begin + u->share);
    if (cpu->update_kernel == TN_KERNEL_SUMSQ) cpu->part[task] = TNI_T(squares_of)(u->x[0] + begin, end - begin);
    else if (cpu->update_kernel == TN_KERNEL_ADAMW) TNI_T(adamw_part)(u, begin, end);
    else TNI_T(sgd_part)(u, begin, end);
}

/* The number of tasks of the calls collected so far. */
TNI_FAST int64_t TNI_T(series_tasks)(const tni_cpu *cpu)
{
    const tni_update *last = cpu->update + cpu->updates;        /* one past it */
    return cpu->updates == 0 ? 0 : last[-1].first + tni_ceil_div(last[-1].n, last[-1].share);
}

TNI_FAST void TNI_T(series_end)(tni_cpu *cpu, const tn_view *fault)
{
    int64_t tasks = TNI_T(series_tasks)(cpu), elements = 0;
    for (int k = 0; k < cpu->updates; k++) elements += cpu->update[k].n;
    tni_parallel_for(elements <= TNI_CPU_ALONE ? &cpu->little : &cpu->pool, tasks, TNI_T(series_task), cpu);
    for (int k = 0; k < cpu->updates && cpu->update_kernel == TN_KERNEL_SUMSQ; k++) {
        const tni_update *u = &cpu->update[k];
        float            *s = u->scalars;
        double            sum = 0;
        for (int64_t i = 0; i < tni_ceil_div(u->n, u->share); i++) sum += cpu->part[u->first + i];
        s[TNI_SIZE] = (float)hypot((double)s[TNI_SIZE], sqrt(sum));
        if (!(sum <= 1.7976931348623157e308)) tni_fault(fault, 2, u->index, 0, (int32_t)s[TNI_TAKEN]);
    }
    cpu->updates = 0;
}

TNI_FAST tn_status TNI_T(series_run)(tni_cpu *cpu, const tn_call *c)
{
    const bool    sums = c->kernel == TN_KERNEL_SUMSQ;
    const int64_t n = sums ? c->in[0].shape[0] : c->out[0].shape[0];
    const int64_t share = tni_max(TNI_CPU_SHARE, sums ? tni_ceil_div(n, TNI_CPU_PARTS) : 0);
    if (c->i[1] == 0) cpu->updates = 0;                     /* an earlier series may have ended by an error */
    if (cpu->updates == TNI_CPU_SERIES
        || (sums && TNI_T(series_tasks)(cpu) + tni_ceil_div(n, share) > TNI_CPU_PARTS))
        TNI_T(series_end)(cpu, sums ? &c->out[1] : NULL);           /* the list is full */
    cpu->update_kernel = c->kernel;
    tni_update *u = &cpu->update[cpu->updates];
    u->first = TNI_T(series_tasks)(cpu);
    u->n = n;
    u->share = share;
    u->index = c->i[0];
    u->scalars = (float *)(sums ? c->out[0].data : c->in[0].data);
    for (int k = 0; k < 4; k++) u->x[k] = sums || k >= c->n_out ? NULL : TNI_OUT(k);
    if (sums) u->x[0] = (float *)c->in[0].data;
    memcpy(u->f, c->f, sizeof u->f);
    cpu->updates++;
    if (c->i[2] == 0) TNI_T(series_end)(cpu, sums ? &c->out[1] : NULL);
    return TN_OK;
}

/* One matrix of a batch, from element c->i[0] on: its momentum, the step from it, and the square of the step's norm. */
TNI_FAST void TNI_T(muon_begin_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *s = TNI_IN(0), *g = TNI_OUT(1) + c->i[0];
    float       *x = TNI_OUT(0) + c->i[0], *m = TNI_OUT(2) + c->i[0];
    const bool   nesterov = c->f[1] != 0;
    const double mu = c->f[0] < 0 ? (double)s[TNI_MOMENTUM] : c->f[0];
    const TNI_V  keep = TNI_SET((float)mu), take = TNI_SET((float)(1 - mu));
    const TNI_V  factor = TNI_SET(s[TNI_FACTOR]);
    TNI_T(wide)  squares = TNI_T(wide_zero)();
    for (int64_t i = begin; i < end; i += TNI_W) {
        int   k = TNI_T(lanes)(end - i);
        TNI_V d = take * (TNI_LOAD(g + i, k) * factor), mi = TNI_FMA(keep, TNI_LOAD(m + i, k), d);
        TNI_STORE(m + i, mi, k);
        if (nesterov) mi = TNI_FMA(keep, mi, d);
        TNI_STORE(x + i, mi, k);
        TNI_T(wide_add_product)(&squares, mi, mi);
    }
    p->cpu->part[task] = TNI_T(wide_sum)(&squares);
}

TNI_FAST void TNI_T(muon_scale_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    float      *x = TNI_OUT(0) + c->i[0];
    const TNI_V factor = TNI_SET((float)c->f[2]);
    for (int64_t i = begin; i < end; i += TNI_W) {
        int k = TNI_T(lanes)(end - i);
        TNI_STORE(x + i, TNI_LOAD(x + i, k) * factor, k);
    }
}

TNI_FAST tn_status TNI_T(muon_begin_run)(tni_cpu *cpu, const tn_call *call)
{
    tn_call       c = *call;
    const int64_t batch = c.out[0].shape[0], n = c.out[0].shape[1];
    tni_pass      p;
    if (((const float *)c.in[0].data)[TNI_SKIP] != 0) return tni_reference_run(cpu, call);
    p.cpu = cpu;
    p.call = &c;
    for (int64_t b = 0; b < batch; b++) {
        c.i[0] = b * n;
        c.f[2] = tni_muon_unit(tni_parts_sum(cpu, tni_pass_run(&p, n, 1, TNI_CPU_PARTS, TNI_T(muon_begin_task))));
        tni_pass_run(&p, n, 1, INT64_MAX, TNI_T(muon_scale_task));
    }
    return TN_OK;
}

TNI_FAST void TNI_T(muon_end_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *s = TNI_IN(0), *x = TNI_IN(1);
    float       *w = TNI_OUT(0);
    const TNI_V  scale = TNI_SET((float)c->f[0]), decay = TNI_SET((float)c->f[3]);
    const TNI_V  down = TNI_SET((float)(-(double)s[TNI_LR] * c->f[4]));
    for (int64_t i = begin; s[TNI_SKIP] == 0 && i < end; i += TNI_W) {
        int   k = TNI_T(lanes)(end - i);
        TNI_V wi = TNI_LOAD(w + i, k);
        TNI_STORE(w + i, TNI_FMA(down, TNI_FMA(decay, wi, scale * TNI_LOAD(x + i, k)), wi), k);
    }
}

/* A pass whose items, rows or single elements of the first output, do not depend on each other. */
TNI_FAST tn_status TNI_T(pass_run)(tni_cpu *cpu, const tn_call *c, tn_task_fn fn)
{
    const tn_view *y = &c->out[0];
    tni_pass       p;
    p.cpu = cpu;
    p.call = c;
    if (TNI_T(rows_run)(&p, y->shape[0], y->rank > 1 ? y->shape[1] : 1, INT64_MAX, 0, fn) < 0) return TN_ERR_MEMORY;
    return TN_OK;
}
#endif /* float */
