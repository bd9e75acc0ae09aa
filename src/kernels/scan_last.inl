#if TNI_SEQUENCES && TNI_BITS == 32 && TNI_PLAIN_ALL
/* ---- scan_states whose last state alone is wanted (i1), see >>op-scan ------- >>pass-scan-last
   Groups of TNI_W chains as in >>pass-scan-lanes. No other kernel reads the states before the last one and their gradients, so
   both stay in the order of lanes, and only every fourth state is checked for its range and divided by its norm: r is -1 at
   the others. */
enum { TNI_T(last_every) = 4, TNI_T(last_sites) = 8, TNI_T(last_depth) = 128 };

/* What is kept of a group, vectors: states [n+1,d], norms [n+1], features [n,s]. Those of all groups lie one after the
   other. */
typedef struct TNI_T(last_kept) { TNI_REAL *y, *r, *phi; } TNI_T(last_kept);

TNI_INLINE TNI_T(last_kept) TNI_T(scan_last_kept)(const tni_scans *p, const tn_view *v, int64_t group)
{
    const int64_t    N = p->s.states, d = p->s.d, groups = tni_ceil_div(p->s.batch, TNI_W);
    TNI_T(last_kept) k;
    k.y = (TNI_REAL *)v->data + group * N * d * TNI_W;
    k.r = (TNI_REAL *)v->data + (groups * d + group) * N * TNI_W;
    k.phi = (TNI_REAL *)v->data + (groups * N * (d + 1) + group * p->s.n * p->features) * TNI_W;
    return k;
}

TNI_FAST void TNI_T(scan_last_task)(void *arg, int64_t task, int worker)
{
    const tni_scans   *p = (const tni_scans *)arg;
    const tni_prefixes s = p->s;
    const tn_view     *v = &p->call->in[0];
    const int64_t      d = s.d, S = p->features, first = task * TNI_W, chains = tni_min(TNI_W, s.batch - first);
    const int64_t      block = TNI_T(scan_lanes_block)(d), each = v->shape[0] > 1 ? d : 0;
    const TNI_REAL    *phi = (const TNI_REAL *)p->phi->data + first * s.n * S;
    const TNI_T(last_kept) own = TNI_T(scan_last_kept)(p, &p->call->out[2], task);
    TNI_REAL          *y = (TNI_REAL *)p->call->out[0].data, *logs = (TNI_REAL *)p->call->out[1].data;
    TNI_REAL          *begins = own.y + tni_prefix_place(&s, 0, 0) * d * TNI_W, inverse[TNI_W];
    TNI_T(lanes_states) w;
    double             sums[TNI_W];
    memset(&w, 0, sizeof w);
    w.every = TNI_T(last_every);
    w.y = own.y;
    w.r = own.r;
    w.phi = own.phi;
    w.t = (TNI_REAL *)(void *)(p->scratch + (size_t)worker * p->each);
    w.by = w.t + tni_max(S, 1) * d * TNI_W;
    for (int64_t i = 0; i < TNI_W; i++) sums[i] = 0;
    for (int64_t begin = 0; begin < s.states; begin += block) {
        const int64_t end = tni_min(begin + block, s.states), from = tni_max(begin, 1);
        const int64_t site = tni_prefix_site(&s, 0, s.reverse ? end - 1 : from);
        if (end > from) TNI_T(scan_to_lanes)(phi + site * S, s.n * S, chains, (end - from) * S, own.phi + site * S * TNI_W);
        w.before = own.y + tni_prefix_place(&s, 0, from - 1) * d * TNI_W;
        for (int careful = 0; careful < 2; careful++) {
            if (begin == 0) TNI_T(scan_to_lanes)((const TNI_REAL *)v->data + first * each, each, chains, d, begins);
            if (TNI_T(scan_lanes_states)(careful, p, &w, begin, end)) break;
        }
        for (int64_t k = begin; k < end; k++) {
            const TNI_REAL *r = own.r + tni_prefix_place(&s, 0, k) * TNI_W;
            if (r[0] < 0) continue;
            TNI_STORE(inverse, TNI_T(log_of)(TNI_LOAD(r, TNI_W)), TNI_W);
            for (int64_t i = 0; i < TNI_W; i++) sums[i] += (double)inverse[i];
        }
    }
    TNI_T(scan_from_lanes)(own.y + tni_prefix_place(&s, 0, s.n) * d * TNI_W, y + first * d, d, chains, d);
    for (int64_t i = 0; i < chains; i++) logs[first + i] = (TNI_REAL)sums[i];
}

/* z of all states, and dphi */
TNI_FAST void TNI_T(scan_last_backward_task)(void *arg, int64_t task, int worker)
{
    const tni_scans   *p = (const tni_scans *)arg;
    const tni_prefixes s = p->s;
    const tn_call     *c = p->call;
    const int64_t      d = s.d, S = p->features, first = task * TNI_W, chains = tni_min(TNI_W, s.batch - first);
    const TNI_T(last_kept) own = TNI_T(scan_last_kept)(p, &c->in[2], task);
    const TNI_REAL    *dy = (const TNI_REAL *)c->in[3].data + first * d, *dlog = (const TNI_REAL *)c->in[4].data + first;
    TNI_REAL          *dphi = (TNI_REAL *)c->out[0].data, *z = (TNI_REAL *)c->out[2].data + first * s.states * d;
    TNI_REAL          *t = (TNI_REAL *)(void *)(p->scratch + (size_t)worker * p->each), *part = t + tni_max(S, 1) * d * TNI_W;
    TNI_REAL          *x = z + tni_prefix_place(&s, 0, s.n) * d * TNI_W, later[TNI_W], inverse[TNI_W];
    for (int64_t i = 0; i < TNI_W; i++) {                   /* nothing arrives at lanes without a chain */
        for (int64_t f = 0; f < d; f++) x[f * TNI_W + i] = i < chains ? dy[i * d + f] : 0;
        later[i] = i < chains ? dlog[i] : 0;
    }
    for (int64_t k = s.n; k >= 0; k--) {
        const int64_t   place = tni_prefix_place(&s, 0, k), site = tni_prefix_site(&s, 0, k);
        const TNI_REAL *y = own.y + place * d * TNI_W, *r = own.r + place * TNI_W;
        if (!(r[0] < 0)) {
            for (int64_t i = 0; i < TNI_W; i++) {
                if (r[i] == 0) later[i] = 0;
                inverse[i] = r[i] == 0 ? 0 : 1 / r[i];
            }
            const TNI_V along = TNI_LOAD(later, TNI_W) - TNI_T(scan_lanes_dot)(d, x, y);
            TNI_T(scan_lanes_scale)(d, x, y, along, TNI_LOAD(inverse, TNI_W));
        }
        if (k == 0) break;
        TNI_T(scan_lanes_step)(p, k, x, t);
        x = z + tni_prefix_place(&s, 0, k - 1) * d * TNI_W;
        TNI_T(scan_lanes_combine)(false, p, t, own.phi + site * S * TNI_W, NULL, x);
        if (!dphi) continue;
        TNI_T(scan_lanes_dphi)(p, t, own.y + tni_prefix_place(&s, 0, k - 1) * d * TNI_W, part);
        for (int64_t i = 0; i < chains; i++)
            TNI_T(scan_lanes_store)(c->accumulate, S, part + i, dphi + ((first + i) * s.n + site) * S);
    }
}

/* The gradients of the cores of some neighbouring sites. All chains side by side are the depth of a product: of what is left
   of a core, [d,chains], and of phi times what is right of it, [s d,chains]. */
TNI_FAST void TNI_T(scan_last_cores_task)(void *arg, int64_t task, int worker)
{
    const tni_scans *p = (const tni_scans *)arg;
    const int64_t    d = p->s.d, S = p->features, groups = tni_ceil_div(p->s.batch, TNI_W), step = p->s.states * d * TNI_W;
    const int64_t    end = tni_min(p->s.n, (task + 1) * TNI_T(last_sites)), most = TNI_T(last_depth) / TNI_W;
    const int64_t    tiles = tni_ceil_div(S * d, 4);
    TNI_REAL        *left = (TNI_REAL *)(void *)(p->scratch + (size_t)worker * p->each);
    TNI_REAL        *right = left + d * TNI_T(last_depth), *part = right + S * d * TNI_T(last_depth);
    TNI_T(gemm)      g;
    memset(&g, 0, sizeof g);
    g.a = left;
    g.m = d;
    g.c_row = S * d;
    g.c_col = 1;
    g.alpha = 1;
    g.high = tni_ceil_div(d, tni_ceil_div(d, TNI_T(dots_high)));
    for (int64_t site = task * TNI_T(last_sites); site < end; site++)
        for (int64_t first = 0; first < groups; first += most) {
            const int64_t   n = tni_min(most, groups - first), depth = n * TNI_W;
            const TNI_T(last_kept) own = TNI_T(scan_last_kept)(p, &p->call->in[2], first);
            const TNI_REAL *z = (const TNI_REAL *)p->call->out[2].data + first * step + site * d * TNI_W;
            const TNI_REAL *y = own.y + site * d * TNI_W, *x = p->s.reverse ? z : y, *other = (p->s.reverse ? y : z) + d * TNI_W;
            TNI_REAL       *out = (TNI_REAL *)p->call->out[1].data + site * d * S * d;
            const bool      add = first > 0 || p->call->i[2];
            for (int64_t k = 0; k < n; k++) {
                const TNI_REAL *phi = own.phi + (k * p->s.n + site) * S * TNI_W;
                for (int64_t f = 0; f < d; f++) {
                    const TNI_V v = TNI_LOAD(other + k * step + f * TNI_W, TNI_W);
                    TNI_STORE(left + f * depth + k * TNI_W, TNI_LOAD(x + k * step + f * TNI_W, TNI_W), TNI_W);
                    for (int64_t j = 0; j < S; j++)
                        TNI_STORE(right + (j * d + f) * depth + k * TNI_W, v * TNI_LOAD(phi + j * TNI_W, TNI_W), TNI_W);
                }
            }
            g.k = g.a_row = depth;
            g.c = add ? part : out;
            for (int64_t j = 0; j < tiles; j++) {
                if (site + 1 < p->s.n) {                    /* the lines of the next site */
                    TNI_T(scan_request)(false, x + d * TNI_W, step, n, d * TNI_W, j, tiles);
                    TNI_T(scan_request)(false, other + d * TNI_W, step, n, d * TNI_W, j, tiles);
                    TNI_T(scan_request)(false, own.phi + (site + 1) * S * TNI_W, p->s.n * S * TNI_W, n, S * TNI_W, j, tiles);
                }
                TNI_T(gemm_dots_rows)(&g, right + 4 * j * depth, depth, 4 * j, S * d, false);
            }
            if (add) TNI_T(scan_add)(out, out, 1, part, 1, d * S * d);
        }
}

TNI_FAST tn_status TNI_T(scan_last_run)(tni_cpu *cpu, const tn_call *c)
{
    const bool backward = c->kernel == TN_KERNEL_SCAN_STATES_BACKWARD;
    tni_scans  p = TNI_ZERO;
    p.cpu = cpu;
    p.call = c;
    p.cores = &c->in[backward ? 0 : 1];
    p.phi = &c->in[backward ? 1 : 2];
    p.features = p.cores->shape[2];
    p.s = tni_prefixes_of(c, p.phi->shape[1], p.cores->shape[3], backward ? &c->in[3] : &c->out[0]);
    p.s.states = p.s.n + 1;
    p.s.open = true;
    p.transposed = p.s.reverse != backward;
    if (!tni_scans_scratch(&p, TNI_W * (p.s.d * tni_max(p.features, 1) + p.features + 1), 0, sizeof(TNI_REAL)))
        return TN_ERR_MEMORY;
    tni_parallel_for(&cpu->pool, tni_ceil_div(p.s.batch, TNI_W),
                     backward ? TNI_T(scan_last_backward_task) : TNI_T(scan_last_task), &p);
    if (!backward || !c->out[1].data) return TN_OK;
    if (!tni_scans_scratch(&p, p.s.d * ((p.features + 1) * TNI_T(last_depth) + p.features * p.s.d), 0, sizeof(TNI_REAL)))
        return TN_ERR_MEMORY;
    tni_parallel_for(&cpu->pool, tni_ceil_div(p.s.n, TNI_T(last_sites)), TNI_T(scan_last_cores_task), &p);
    return TN_OK;
}
#endif

#if TNI_SEQUENCES
/* Any scan and its backward pass; i1 is 0 where all states are wanted. */
TNI_FAST tn_status TNI_T(any_scan_run)(tni_cpu *cpu, const tn_call *c)
{
#if TNI_BITS == 32 && TNI_PLAIN_ALL
    if (c->i[1]) return TNI_T(scan_last_run)(cpu, c);
#endif
    return TNI_T(scan_run)(cpu, c);
}
#endif
