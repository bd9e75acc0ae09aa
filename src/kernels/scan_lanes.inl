#if TNI_SEQUENCES
#if TNI_BITS == 32
/* ---- scan_states of many chains, a chain in each lane, see >>op-scan ------- >>pass-scan-lanes
   A task is TNI_W chains. Numbers of theirs lie side by side, [number,chain], and a state times a core,
     t[q] = sum_j x[j] core[j,q],   q = (s,f),     or with the core transposed   t[q] = sum_j core[q,j] x[j],   q = (e,s),
   broadcasts the numbers of the core, which all chains share: all lanes work for any d, and sums need no other lane. phi
   then combines the vectors of all s. States, features and norms are transposed from and to their places in blocks of
   sites. */
#define TNI_TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

/* n of the vectors t. `core` begins at the first one; its numbers of the next q or of the next j are `stride` apart. */
TNI_INLINE void TNI_T(scan_lanes_tile)(const int n, const bool transposed, const TNI_REAL *core, int64_t stride,
                                       const TNI_REAL *x, int64_t depth, TNI_REAL *t)
{
    int64_t j;
#define TNI_X(i) \
    const TNI_REAL *core##i = core + (i < n ? i : 0) * (transposed ? stride : 1); \
    TNI_V           sum##i = TNI_SET((TNI_REAL)0);
    TNI_TWELVE(TNI_X)
#undef TNI_X
    for (j = 0; j < depth; j++) {
        const TNI_V v = TNI_LOAD(x + j * TNI_W, TNI_W);
#define TNI_X(i) if (i < n) sum##i = TNI_FMA(TNI_SET(core##i[transposed ? j : j * stride]), v, sum##i);
        TNI_TWELVE(TNI_X)
#undef TNI_X
    }
#define TNI_X(i) if (i < n) TNI_STORE(t + i * TNI_W, sum##i, TNI_W);
    TNI_TWELVE(TNI_X)
#undef TNI_X
}
#undef TNI_TWELVE

TNI_INLINE void TNI_T(scan_lanes_product)(const bool transposed, const TNI_REAL *core, int64_t d, int64_t columns,
                                          const TNI_REAL *x, TNI_REAL *t)
{
    const int64_t stride = transposed ? d : columns, next = transposed ? d : 1;
    int64_t       q;
    for (q = 0; q + 8 <= columns && (TNI_LEVEL != 1 || columns - q != 12); q += 8)
        TNI_T(scan_lanes_tile)(8, transposed, core + q * next, stride, x, d, t + q * TNI_W);
    if (TNI_LEVEL == 1 && columns - q == 12) {              /* of two units the sums of a tile of four would use one */
        TNI_T(scan_lanes_tile)(12, transposed, core + q * next, stride, x, d, t + q * TNI_W);
        q += 12;
    }
    if ((columns - q) & 4) {
        TNI_T(scan_lanes_tile)(4, transposed, core + q * next, stride, x, d, t + q * TNI_W);
        q += 4;
    }
    if (columns & 2) {
        TNI_T(scan_lanes_tile)(2, transposed, core + q * next, stride, x, d, t + q * TNI_W);
        q += 2;
    }
    if (columns & 1) TNI_T(scan_lanes_tile)(1, transposed, core + q * next, stride, x, d, t + q * TNI_W);
}

/* t from the states or adjoints x [d,W] and the core of the step to state k */
TNI_FAST void TNI_T(scan_lanes_step)(const tni_scans *p, int64_t k, const TNI_REAL *x, TNI_REAL *t)
{
    const int64_t   d = p->s.d, columns = d * p->features, site = p->cores->shape[0] == 1 ? 0 : tni_prefix_site(&p->s, 0, k);
    const TNI_REAL *core = (const TNI_REAL *)p->cores->data + site * d * columns;
    if (p->transposed) TNI_T(scan_lanes_product)(true, core, d, columns, x, t);
    else           TNI_T(scan_lanes_product)(false, core, d, columns, x, t);
}

/* out [d] = sum_s by[s] t[s], added to what is there if `add`. Returns the inner products with `with`, NULL: with out. */
TNI_INLINE TNI_V TNI_T(scan_lanes_combine)(const bool add, const tni_scans *p, const TNI_REAL *t, const TNI_REAL *by,
                                           const TNI_REAL *with, TNI_REAL *out)
{
    const int64_t d = p->s.d, S = p->features, next = (p->transposed ? 1 : d) * TNI_W, step = (p->transposed ? S : 1) * TNI_W;
    TNI_V         even = TNI_SET((TNI_REAL)0), odd = even;
    int64_t       j;
    for (int64_t f = 0; f < d; f++, t += step) {
        TNI_V sum = add ? TNI_LOAD(out + f * TNI_W, TNI_W) : TNI_SET((TNI_REAL)0);
        for (j = 0; j + 2 <= S; j += 2) {
            sum = TNI_FMA(TNI_LOAD(by + j * TNI_W, TNI_W), TNI_LOAD(t + j * next, TNI_W), sum);
            sum = TNI_FMA(TNI_LOAD(by + (j + 1) * TNI_W, TNI_W), TNI_LOAD(t + (j + 1) * next, TNI_W), sum);
        }
        if (j < S) sum = TNI_FMA(TNI_LOAD(by + j * TNI_W, TNI_W), TNI_LOAD(t + j * next, TNI_W), sum);
        TNI_STORE(out + f * TNI_W, sum, TNI_W);
        TNI_V other = with ? TNI_LOAD(with + f * TNI_W, TNI_W) : sum;
        if (f % 2 == 0) even = TNI_FMA(sum, other, even);
        else odd = TNI_FMA(sum, other, odd);
    }
    return even + odd;
}

/* `count` numbers of each chain, chains `step` numbers apart, to lanes [count,W]. Lanes without a chain repeat the last
   one. */
TNI_FAST void TNI_T(scan_to_lanes)(const TNI_REAL *from, int64_t step, int64_t chains, int64_t count, TNI_REAL *lanes)
{
    const int64_t size = (int64_t)sizeof *from;
    tni_copy_transposed((char *)lanes, TNI_W * size, (const char *)from, step * size, count, chains, size);
    for (int64_t i = 0; chains < TNI_W && i < count; i++)
        for (int64_t j = chains; j < TNI_W; j++) lanes[i * TNI_W + j] = lanes[i * TNI_W + chains - 1];
}

TNI_FAST void TNI_T(scan_from_lanes)(const TNI_REAL *lanes, TNI_REAL *to, int64_t step, int64_t chains, int64_t count)
{
    const int64_t size = (int64_t)sizeof *to;
    tni_copy_transposed((char *)to, step * size, (const char *)lanes, TNI_W * size, chains, count, size);
}

/* Norms of states x [d,W] whose squares float cannot sum: x is divided by them, and inverse becomes 1. */
TNI_RARE TNI_FAST void TNI_T(scan_lanes_edge)(TNI_REAL *x, int64_t d, TNI_REAL *norm, TNI_REAL *inverse, TNI_REAL *spare)
{
    const TNI_REAL limit = (TNI_REAL)1e15;
    for (int64_t i = 0; i < TNI_W; i++) {
        if (norm[i] > 1 / limit && norm[i] < limit) continue;
        for (int64_t f = 0; f < d; f++) spare[f] = x[f * TNI_W + i];
        norm[i] = (TNI_REAL)TNI_T(chain_norm)(spare, d, true);
        inverse[i] = 1;
        for (int64_t f = 0; f < d; f++) x[f * TNI_W + i] = spare[f];
    }
}

/* Sites of a block */
TNI_INLINE int64_t TNI_T(scan_lanes_block)(int64_t d) { return tni_max(4, tni_min(64, 256 / tni_max(d, 1) / 4 * 4)); }

/* x [d] = (x + y along) by; y may be NULL */
TNI_INLINE void TNI_T(scan_lanes_scale)(int64_t d, TNI_REAL *x, const TNI_REAL *y, TNI_V along, TNI_V by)
{
    for (int64_t f = 0; f < d; f++) {
        TNI_V v = TNI_LOAD(x + f * TNI_W, TNI_W);
        if (y) v = TNI_FMA(TNI_LOAD(y + f * TNI_W, TNI_W), along, v);
        TNI_STORE(x + f * TNI_W, v * by, TNI_W);
    }
}

/* The inner product of x and y [d] */
TNI_INLINE TNI_V TNI_T(scan_lanes_dot)(int64_t d, const TNI_REAL *x, const TNI_REAL *y)
{
    TNI_V even = TNI_SET((TNI_REAL)0), odd = even;
    for (int64_t f = 0; f < d; f++) {
        if (f % 2 == 0) even = TNI_FMA(TNI_LOAD(x + f * TNI_W, TNI_W), TNI_LOAD(y + f * TNI_W, TNI_W), even);
        else odd = TNI_FMA(TNI_LOAD(x + f * TNI_W, TNI_W), TNI_LOAD(y + f * TNI_W, TNI_W), odd);
    }
    return even + odd;
}

/* Where states of a group go, in vectors: y [.,d], norms r [.], features phi [.,s], of which the first is that of a place and
   of a site in the chain. Every few states are divided by their norms; r of the others is -1. before [d]: the state before
   the first one that is computed; t [s,d] and by [s] are scratch. ahead: of the first chain's states, requested on the way,
   or NULL. */
typedef struct TNI_T(lanes_states) {
    TNI_REAL *y, *r, *phi, *before, *t, *by, *ahead;
    int64_t   place, site, every, chains;
} TNI_T(lanes_states);

/* States begin .. end-1. While a state's norm is computed, the unnormalised state is already multiplied by the next core; it
   is divided by the norm afterwards. False, and to be repeated with `careful`, if squares overflowed or underflowed: then
   each state is divided by its norm. */
TNI_NOINLINE TNI_FAST bool TNI_T(scan_lanes_states)(bool careful, const tni_scans *p, const TNI_T(lanes_states) *w,
                                                    int64_t begin, int64_t end)
{
    const int64_t d = p->s.d, S = p->features;
    const TNI_V   zero = TNI_SET((TNI_REAL)0);
    TNI_V         range = zero, total, scale = zero;
    TNI_REAL      lane[TNI_W], *before = w->before;
    bool          good = true, pending = false;             /* the state before is still to be divided by its norm */
    for (int64_t k = begin; k < end; k++) {
        const int64_t at = tni_prefix_place(&p->s, 0, k) - w->place;
        TNI_REAL     *r = w->r + at * TNI_W, *x = w->y + at * d * TNI_W;
        if (k == 0) total = TNI_T(scan_lanes_dot)(d, x, x);
        else {
            const TNI_REAL *phi = w->phi + (tni_prefix_site(&p->s, 0, k) - w->site) * S * TNI_W;
            if (w->ahead)
                TNI_T(scan_request)(true, w->ahead, p->s.states * d, w->chains, (end - begin) * d, k - begin, end - begin);
            TNI_T(scan_lanes_step)(p, k, before, w->t);
            if (pending) {
                TNI_T(scan_lanes_scale)(d, before, NULL, zero, scale);
                for (int64_t j = 0; j < S; j++) TNI_STORE(w->by + j * TNI_W, TNI_LOAD(phi + j * TNI_W, TNI_W) * scale, TNI_W);
            }
            total = TNI_T(scan_lanes_combine)(false, p, w->t, pending ? w->by : phi, NULL, x);
        }
        before = x;
        pending = careful || (k + 1) % w->every == 0 || k + 1 == end;
        TNI_STORE(r, pending ? TNI_SQRT(total) : TNI_SET((TNI_REAL)-1), TNI_W);
        if (!pending) continue;
        scale = TNI_SET((TNI_REAL)1) / TNI_LOAD(r, TNI_W);
        range = TNI_FMA(scale, scale, TNI_FMA(total, zero, range));     /* large after a small norm, NaN after infinity */
        if (!careful) continue;
        TNI_STORE(lane, scale, TNI_W);
        TNI_T(scan_lanes_edge)(x, d, r, lane, w->t);
        scale = TNI_LOAD(lane, TNI_W);
    }
    if (pending) TNI_T(scan_lanes_scale)(d, before, NULL, zero, scale);
    TNI_STORE(lane, range, TNI_W);
    for (int64_t i = 0; i < TNI_W; i++) good &= lane[i] < (TNI_REAL)1e28;
    return good;
}

TNI_FAST void TNI_T(scan_lanes_task)(void *arg, int64_t task, int worker)
{
    const tni_scans   *p = (const tni_scans *)arg;
    const tni_prefixes s = p->s;
    const tn_view     *v = &p->call->in[0];
    const int64_t      d = s.d, S = p->features, first = task * TNI_W, chains = tni_min(TNI_W, s.batch - first);
    const int64_t      block = TNI_T(scan_lanes_block)(d), each = v->shape[0] > 1 ? d : 0;
    const TNI_REAL    *given = (const TNI_REAL *)p->phi->data;
    TNI_REAL          *y = (TNI_REAL *)p->call->out[0].data, *logs = (TNI_REAL *)p->call->out[1].data;
    TNI_REAL          *r = (TNI_REAL *)p->call->out[2].data;
    TNI_T(lanes_states) w;
    double             sums[TNI_W];
    w.every = 1;
    w.chains = chains;
    w.before = (TNI_REAL *)(void *)(p->scratch + (size_t)worker * p->each);
    w.by = w.before + d * TNI_W;
    w.t = w.by + S * TNI_W;
    w.y = w.t + tni_max(S, 1) * d * TNI_W;
    w.phi = w.y + block * d * TNI_W;
    w.r = w.phi + block * S * TNI_W;
    for (int64_t i = 0; i < TNI_W; i++) sums[i] = 0;
    for (int64_t begin = 0; begin < s.states; begin += block) {
        const int64_t n = tni_min(block, s.states - begin), end = begin + n, from = tni_max(begin, 1);
        const int64_t place = tni_prefix_place(&s, first, s.reverse ? end - 1 : begin);
        const int64_t site = tni_prefix_site(&s, first, s.reverse ? end - 1 : from);
        w.place = place - first * s.states;
        w.site = site - first * s.n;
        w.ahead = y + place * d;
        if (end > from) TNI_T(scan_to_lanes)(given + site * S, s.n * S, chains, (end - from) * S, w.phi);
        for (int careful = 0; careful < 2; careful++) {
            if (begin == 0)
                TNI_T(scan_to_lanes)((const TNI_REAL *)v->data + first * each, each, chains, d,
                                     w.y + (s.reverse ? n - 1 : 0) * d * TNI_W);
            if (TNI_T(scan_lanes_states)(careful, p, &w, begin, end)) break;
        }
        memcpy(w.before, w.y + (s.reverse ? 0 : n - 1) * d * TNI_W, sizeof *w.y * (size_t)(d * TNI_W));
        TNI_T(scan_from_lanes)(w.y, y + place * d, s.states * d, chains, n * d);
        if (r) TNI_T(scan_from_lanes)(w.r, r + place, s.states, chains, n);
        for (int64_t k = begin; k < end; k++) {
            TNI_REAL *log_scale = w.r + (s.reverse ? end - 1 - k : k - begin) * TNI_W;
            TNI_STORE(log_scale, TNI_T(log_of)(TNI_LOAD(log_scale, TNI_W)), TNI_W);
            for (int64_t i = 0; i < TNI_W; i++) {
                sums[i] += (double)log_scale[i];
                log_scale[i] = (TNI_REAL)sums[i];
            }
        }
        TNI_T(scan_from_lanes)(w.r, logs + place, s.states, chains, n);
    }
}

/* The reciprocals of n norms, and the sums of what arrives at this logarithm and at later ones; a norm of 0 ends them. */
TNI_FAST void TNI_T(scan_lanes_sums)(bool reverse, int64_t n, double *sums, TNI_REAL *norms, TNI_REAL *later)
{
    for (int64_t k = n - 1; k >= 0; k--) {
        TNI_REAL *norm = norms + (reverse ? n - 1 - k : k) * TNI_W, *sum = later + (norm - norms);
        for (int64_t i = 0; i < TNI_W; i++) {
            sums[i] = norm[i] == 0 ? 0 : sums[i] + (double)sum[i];
            sum[i] = (TNI_REAL)sums[i];
            norm[i] = norm[i] == 0 ? 0 : 1 / norm[i];
        }
    }
}

/* adjoint += x, and its product with the state */
TNI_FAST TNI_V TNI_T(scan_lanes_last)(int64_t d, TNI_REAL *adjoint, const TNI_REAL *x, const TNI_REAL *state)
{
    TNI_V dot = TNI_SET((TNI_REAL)0);
    for (int64_t f = 0; f < d; f++) {
        const TNI_V sum = TNI_LOAD(adjoint + f * TNI_W, TNI_W) + TNI_LOAD(x + f * TNI_W, TNI_W);
        TNI_STORE(adjoint + f * TNI_W, sum, TNI_W);
        dot = TNI_FMA(sum, TNI_LOAD(state + f * TNI_W, TNI_W), dot);
    }
    return dot;
}

/* The gradient of the features of a site instead of them. */
TNI_FAST void TNI_T(scan_lanes_dphi)(const tni_scans *p, const TNI_REAL *t, const TNI_REAL *earlier, TNI_REAL *features)
{
    const int64_t d = p->s.d, S = p->features, next = p->transposed ? S : 1;
    for (int64_t j = 0; j < S; j++) {
        TNI_V sum = TNI_SET((TNI_REAL)0);
        for (int64_t f = 0; f < d; f++)
            sum = TNI_FMA(TNI_LOAD(t + (p->transposed ? j : j * d) * TNI_W + f * next * TNI_W, TNI_W),
                          TNI_LOAD(earlier + f * TNI_W, TNI_W), sum);
        TNI_STORE(features + j * TNI_W, sum, TNI_W);
    }
}

/* The n numbers of a lane that begin at `from`. */
TNI_FAST void TNI_T(scan_lanes_store)(bool add, int64_t n, const TNI_REAL *from, TNI_REAL *to)
{
    for (int64_t j = 0; j < n; j++) to[j] = add ? to[j] + from[j * TNI_W] : from[j * TNI_W];
}

TNI_FAST void TNI_T(scan_lanes_backward_task)(void *arg, int64_t task, int worker)
{
    const tni_scans   *p = (const tni_scans *)arg;
    const tni_prefixes s = p->s;
    const tn_call     *c = p->call;
    const int64_t      d = s.d, S = p->features, first = task * TNI_W, chains = tni_min(TNI_W, s.batch - first);
    const int64_t      block = TNI_T(scan_lanes_block)(d);
    const TNI_REAL    *y = (const TNI_REAL *)c->in[2].data, *r = (const TNI_REAL *)c->in[3].data;
    const TNI_REAL    *dy = (const TNI_REAL *)c->in[4].data, *dlog = (const TNI_REAL *)c->in[5].data;
    TNI_REAL          *dphi = (TNI_REAL *)c->out[0].data, *z = (TNI_REAL *)c->out[1].data;
    TNI_REAL          *x = (TNI_REAL *)(void *)(p->scratch + (size_t)worker * p->each), *t = x + d * TNI_W;
    TNI_REAL          *states = t + tni_max(S, 1) * d * TNI_W, *given = states + (block + 1) * d * TNI_W;
    TNI_REAL          *phi = given + block * d * TNI_W, *norms = phi + block * S * TNI_W, *later = norms + block * TNI_W;
    double             sums[TNI_W];
    for (int64_t i = 0; i < TNI_W; i++) sums[i] = 0;
    memset(x, 0, sizeof *x * (size_t)(d * TNI_W));
    for (int64_t end = s.states; end > 0; end -= block) {
        /* states begin .. end-1, and of y the one before them, too */
        const int64_t begin = tni_max(end - block, 0), n = end - begin, before = begin > 0 ? begin - 1 : 0;
        const int64_t place = tni_prefix_place(&s, first, s.reverse ? end - 1 : begin), from = tni_max(begin, 1);
        const int64_t site = tni_prefix_site(&s, first, s.reverse ? end - 1 : from);
        TNI_T(scan_to_lanes)(y + tni_prefix_place(&s, first, s.reverse ? end - 1 : before) * d, s.states * d, chains,
                             (end - before) * d, states);
        TNI_T(scan_to_lanes)(dy + place * d, s.states * d, chains, n * d, given);
        TNI_T(scan_to_lanes)(r + place, s.states, chains, n, norms);
        TNI_T(scan_to_lanes)(dlog + place, s.states, chains, n, later);
        if (end > from)
            TNI_T(scan_to_lanes)((const TNI_REAL *)p->phi->data + site * S, s.n * S, chains, (end - from) * S, phi);
        TNI_T(scan_lanes_sums)(s.reverse, n, sums, norms, later);
        TNI_V dot = TNI_SET((TNI_REAL)0);
        for (int64_t k = end - 1; k >= begin; k--) {
            const int64_t   at = s.reverse ? end - 1 - k : k - begin;
            const TNI_REAL *now = states + (s.reverse ? at : k - before) * d * TNI_W;
            const TNI_REAL *earlier = now + (s.reverse ? d : -d) * TNI_W;
            TNI_REAL       *adjoint = given + at * d * TNI_W, *features = phi + (s.reverse ? at : k - from) * S * TNI_W;
            const TNI_V     by = TNI_LOAD(norms + at * TNI_W, TNI_W);
            if (k == end - 1) dot = TNI_T(scan_lanes_last)(d, adjoint, x, now);
            TNI_V along = TNI_LOAD(later + at * TNI_W, TNI_W) - dot;
            for (int64_t f = 0; f < d; f++) {
                const TNI_V sum = TNI_LOAD(adjoint + f * TNI_W, TNI_W);
                TNI_STORE(adjoint + f * TNI_W, TNI_FMA(TNI_LOAD(now + f * TNI_W, TNI_W), along, sum) * by, TNI_W);
            }
            if (k == 0) break;
            TNI_T(scan_request)(true, z + place * d, s.states * d, chains, n * d, end - 1 - k, n);
            if (begin > 0) {
                const int64_t ahead = tni_min(block, begin), there = (place + (s.reverse ? n : -ahead)) * d;
                TNI_T(scan_request)(false, y + there, s.states * d, chains, ahead * d, end - 1 - k, n);
                TNI_T(scan_request)(false, dy + there, s.states * d, chains, ahead * d, end - 1 - k, n);
            }
            TNI_T(scan_lanes_step)(p, k, adjoint, t);
            if (k > begin)
                dot = TNI_T(scan_lanes_combine)(true, p, t, features, earlier, adjoint + (s.reverse ? d : -d) * TNI_W);
            else TNI_T(scan_lanes_combine)(false, p, t, features, NULL, x);
            if (dphi) TNI_T(scan_lanes_dphi)(p, t, earlier, features);
        }
        TNI_T(scan_from_lanes)(given, z + place * d, s.states * d, chains, n * d);
        for (int64_t i = 0; dphi && i < chains && end > from; i++)
            TNI_T(scan_lanes_store)(c->accumulate, (end - from) * S, phi + i, dphi + (site + i * s.n) * S);
    }
}

#endif

TNI_FAST tn_status TNI_T(scan_run)(tni_cpu *cpu, const tn_call *c)
{
    const bool backward = c->kernel == TN_KERNEL_SCAN_BACKWARD || c->kernel == TN_KERNEL_SCAN_STATES_BACKWARD;
    const bool states = c->kernel == TN_KERNEL_SCAN_STATES || c->kernel == TN_KERNEL_SCAN_STATES_BACKWARD;
    tni_scans  p = TNI_ZERO;
    p.cpu = cpu;
    p.call = c;
    p.cores = &c->in[states && !backward ? 1 : 0];
    p.phi = states ? &c->in[backward ? 1 : 2] : NULL;
    p.features = states ? p.cores->shape[2] : 1;
    p.s = tni_prefixes_of(c, states ? p.phi->shape[1] : p.cores->shape[1], p.cores->shape[3],
                          backward ? &c->in[states ? 2 : 1] : &c->out[0]);
    p.transposed = p.s.reverse != backward;
    if (!p.s.open) {
        if (backward && !tni_scans_scratch(&p, 4 * p.s.size, 0, sizeof(TNI_REAL))) return TN_ERR_MEMORY;
        tni_parallel_for(&cpu->pool, p.s.batch, backward ? TNI_T(scan_backward_task) : TNI_T(scan_task), &p);
        return TN_OK;
    }
#if TNI_BITS == 32
    if (states && TNI_W > 1 && 2 * p.s.batch >= TNI_W) {
        const int64_t block = TNI_T(scan_lanes_block)(p.s.d), S = p.features;
        if (!tni_scans_scratch(&p, TNI_W * (p.s.d * (2 + 2 * block + tni_max(S, 1)) + (S + 2) * (block + 1)), 0,
                            sizeof(TNI_REAL))) return TN_ERR_MEMORY;
        tni_parallel_for(&cpu->pool, tni_ceil_div(p.s.batch, TNI_W),
                         backward ? TNI_T(scan_lanes_backward_task) : TNI_T(scan_lanes_task), &p);
        return TN_OK;
    }
#endif
    p.group = states ? TNI_SCAN_GROUP : 1;
    if (!tni_scans_scratch(&p, p.group * p.s.d * (1 + tni_max(p.features, 1)) + (states ? 0 : p.s.d * p.s.d),
                        states && p.transposed ? p.cores->shape[0] * p.s.d * p.s.d * p.features : 0, sizeof(TNI_REAL)))
        return TN_ERR_MEMORY;
    if (states && p.transposed) tni_parallel_for(&cpu->pool, p.cores->shape[0], TNI_T(scan_transpose_task), &p);
    tni_parallel_for(&cpu->pool, tni_ceil_div(p.s.batch, p.group),
                     backward ? TNI_T(scan_states_backward_task) : TNI_T(scan_states_task), &p);
    return TN_OK;
}

/* ---- scan_cores, see >>op-scan -------------------------------------------- >>pass-scan-cores
   The gradient of a core [d,s,d] is a sum over rows, one for each chain: the tensor product of the state before the core,
   phi and z. A tile of it, TNI_MR numbers e by one vector of f for two s, is in registers while the rows pass. A task has
   some neighbouring sites, whose numbers share lines of the cache. If all sites have the same core, a task has some of the
   chains, whose sites are rows as well, and leaves a partial sum. */
typedef struct TNI_T(cores) {
    const tn_call  *call;
    const TNI_REAL *left, *right, *phi;
    int64_t         b, n, d, features, sites, share;        /* of a task: sites; chains, if all sites have the same core */
    bool            uniform;
    TNI_REAL       *parts;                                  /* and the partial sums of the tasks, but for the first one  */
} TNI_T(cores);

typedef struct TNI_T(cores_rows) {
    const TNI_REAL *left, *right, *phi;
    int64_t         count, step, phi_step;                  /* rows, and the distances of two                            */
    bool            add;
} TNI_T(cores_rows);

/* The sums of n rows, those of one s and of the next one in turns, [n,2,W]. If odd, the last row is twice the one before. */
TNI_INLINE void TNI_T(scan_cores_tile)(const int n, bool odd, bool next, const TNI_T(cores_rows) *x, int lanes, TNI_REAL *sums)
{
    const TNI_REAL *left = x->left, *right = x->right, *phi = x->phi, *more = phi + next;
    const int64_t   last = n - 1 - odd;
#define TNI_X(i) TNI_V one##i = TNI_SET((TNI_REAL)0), two##i = one##i;
    TNI_ROWS(TNI_X)
#undef TNI_X
    for (int64_t r = 0; r < x->count; r++, left += x->step, right += x->step, phi += x->phi_step, more += x->phi_step) {
        const TNI_V v = TNI_LOAD(right, lanes), one = v * TNI_SET(*phi), two = v * TNI_SET(*more);
#define TNI_X(i) \
        if (i < n) { \
            const TNI_V by = TNI_SET(left[i < n - 1 ? i : last]); \
            one##i = TNI_FMA(by, one, one##i); \
            two##i = TNI_FMA(by, two, two##i); \
        }
        TNI_ROWS(TNI_X)
#undef TNI_X
    }
#define TNI_X(i) \
    if (i < n) { \
        TNI_STORE(sums + 2 * i * TNI_W, one##i, TNI_W); \
        TNI_STORE(sums + (2 * i + 1) * TNI_W, two##i, TNI_W); \
    }
    TNI_ROWS(TNI_X)
#undef TNI_X
}

/* n rows of out and, `next` numbers after them, those of the next s, unless that is 0 */
TNI_FAST void TNI_T(scan_cores_tiles)(int64_t n, const TNI_T(cores_rows) *x, TNI_REAL *out, int64_t row, int64_t next,
                                      int lanes)
{
    TNI_REAL sums[2 * TNI_MR * TNI_W];
#define TNI_X(i) case i + 1: if (i % 2) TNI_T(scan_cores_tile)(i + 1, n % 2 != 0, next != 0, x, lanes, sums); break;
    switch (n + n % 2) { TNI_ROWS(TNI_X) default: break; }
#undef TNI_X
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < (next ? 2 : 1); j++) {
            TNI_REAL *to = out + i * row + j * next;
            TNI_V     v = TNI_LOAD(sums + (2 * i + j) * TNI_W, TNI_W);
            if (x->add) v = v + TNI_LOAD(to, lanes);
            TNI_STORE(to, v, lanes);
        }
}

/* out [d,s,d] (+)= the sum of the rows */
TNI_FAST void TNI_T(scan_cores_sum)(int64_t d, int64_t S, const TNI_T(cores_rows) *rows, TNI_REAL *out)
{
    const int64_t high = tni_ceil_div(tni_ceil_div(d, tni_ceil_div(d, TNI_MR)), 2) * 2;     /* tiles have even heights */
    for (int64_t i = 0; i < S; i += 2)
        for (int64_t f = 0; f < d; f += TNI_W) {
            TNI_T(cores_rows) x = *rows;
            x.right += f;
            x.phi += i;
            for (int64_t e = 0; e < d; e += high, x.left += high)
                TNI_T(scan_cores_tiles)(tni_min(high, d - e), &x, out + (e * S + i) * d + f, S * d, i + 1 < S ? d : 0,
                                        TNI_T(lanes)(d - f));
        }
}

/* The rows of chain `chain` and those after it, at a site. */
TNI_INLINE TNI_T(cores_rows) TNI_T(scan_cores_rows)(const TNI_T(cores) *p, int64_t chain, int64_t site)
{
    TNI_T(cores_rows) x;
    const int64_t     row = (chain * (p->n + 1) + site) * p->d;
    x.left = p->left + row;
    x.right = p->right + row + p->d;
    x.phi = p->phi + (chain * p->n + site) * p->features;
    x.step = p->uniform ? p->d : (p->n + 1) * p->d;
    x.phi_step = p->uniform ? p->features : p->n * p->features;
    x.count = 0;
    x.add = true;
    return x;
}

/* The chains pass in groups, of which the next one is requested meanwhile. Sums of groups, and of as many sites of one
   chain, have smaller rounding errors than one sum. */
enum { TNI_T(cores_group) = 64 };

TNI_FAST void TNI_T(scan_cores_task)(void *arg, int64_t task, int worker)
{
    const TNI_T(cores) *p = (const TNI_T(cores) *)arg;
    const int64_t site = task * p->sites, sites = tni_min(p->sites, p->n - site), group = TNI_T(cores_group);
    const int64_t size = p->d * p->d * p->features;
    (void)worker;
    for (int64_t chain = 0; chain < p->b; chain += group)
        for (int64_t j = 0; j < sites; j++) {
            TNI_T(cores_rows) x = TNI_T(scan_cores_rows)(p, chain, site + j);
            const int64_t     more = tni_min(group, p->b - chain - group), ahead = group * x.step - j * p->d;
            x.count = tni_min(group, p->b - chain);
            x.add = chain > 0 || p->call->accumulate;
            if (more > 0) {
                TNI_T(scan_request)(false, x.left + ahead, x.step, more, sites * p->d, j, sites);
                TNI_T(scan_request)(false, x.right + ahead, x.step, more, sites * p->d, j, sites);
            }
            TNI_T(scan_cores_sum)(p->d, p->features, &x, (TNI_REAL *)p->call->out[0].data + (site + j) * size);
        }
}

TNI_FAST void TNI_T(scan_cores_uniform_task)(void *arg, int64_t task, int worker)
{
    const TNI_T(cores) *p = (const TNI_T(cores) *)arg;
    const int64_t size = p->d * p->d * p->features, end = tni_min(p->b, (task + 1) * p->share);
    TNI_REAL     *out = task == 0 ? (TNI_REAL *)p->call->out[0].data : p->parts + (task - 1) * size;
    (void)worker;
    if (task > 0 || !p->call->accumulate) memset(out, 0, sizeof *out * (size_t)size);
    for (int64_t chain = task * p->share; chain < end; chain++)
        for (int64_t site = 0; site < p->n; site += TNI_T(cores_group)) {
            TNI_T(cores_rows) x = TNI_T(scan_cores_rows)(p, chain, site);
            x.count = tni_min(TNI_T(cores_group), p->n - site);
            TNI_T(scan_cores_sum)(p->d, p->features, &x, out);
        }
}

TNI_FAST tn_status TNI_T(scan_cores_run)(tni_cpu *cpu, const tn_call *c)
{
    TNI_T(cores) p;
    const tn_view *phi = &c->in[1];
    TNI_REAL      *to = (TNI_REAL *)c->out[0].data;
    memset(&p, 0, sizeof p);
    p.call = c;
    p.b = phi->shape[0]; p.n = phi->shape[1]; p.features = phi->shape[2]; p.d = c->in[0].shape[2];
    p.left = (const TNI_REAL *)c->in[c->i[0] ? 2 : 0].data;
    p.right = (const TNI_REAL *)c->in[c->i[0] ? 0 : 2].data;
    p.phi = (const TNI_REAL *)phi->data;
    p.uniform = c->out[0].shape[0] == 1;
    int64_t size = p.d * p.d * p.features;
    if (size == 0 || c->out[0].shape[0] == 0) return TN_OK;
    if (!p.uniform) {
        p.sites = tni_max(1, tni_min(16, 160 / p.d));
        if (p.b == 0 && !c->accumulate) memset(to, 0, sizeof *to * (size_t)(p.n * size));
        tni_parallel_for(&cpu->pool, tni_ceil_div(p.n, p.sites), TNI_T(scan_cores_task), &p);
        return TN_OK;
    }
    int64_t tasks = tni_max(1, tni_min(tni_min(16, p.b), tni_min(p.b * p.n / 1024, 1048576 / size)));
    p.share = tni_ceil_div(tni_max(p.b, 1), tasks);
    tasks = tni_ceil_div(tni_max(p.b, 1), p.share);
    if (tasks > 1) {
        size_t bytes;
        if (!tni_area_size(tasks - 1, size, sizeof(TNI_REAL), &bytes)
            || !(p.parts = (TNI_REAL *)(void *)tni_cpu_scratch(cpu, bytes))) return TN_ERR_MEMORY;
    }
    tni_parallel_for(&cpu->pool, tasks, TNI_T(scan_cores_uniform_task), &p);
    for (int64_t k = 0; k + 1 < tasks; k++)
        for (int64_t i = 0; i < size; i += TNI_W) {
            const int lanes = TNI_T(lanes)(size - i);
            TNI_STORE(to + i, TNI_LOAD(to + i, lanes) + TNI_LOAD(p.parts + k * size + i, lanes), lanes);
        }
    return TN_OK;
}

#endif
