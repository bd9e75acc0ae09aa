#if TNI_SEQUENCES
/* ---- scan, scan_states, see >>op-scan ------------------------------------ >>pass-scan
   Matrices: a task is a chain. The products are not normalised, unless their norms leave 2^+-16, so that a product need not
   wait for the norm of the one before it, whose division by its norm follows after it.
   Vectors: a task is a group of chains with the same cores, whose states are the rows of one product: a state times a core,
   seen as [d,(s d)], gives the vectors of all s, which phi combines; the norm of the state before is divided off then. With
   matrices of its own each chain is a group.
   Where a product needs a transposed factor on its right (states from right to left, adjoints of states from left to right),
   cores are transposed beforehand, all chains together, and matrices in front of their product. */
TNI_INLINE double TNI_T(scan_sum)(TNI_V v)
{
    TNI_REAL four[4];
    TNI_T(lane_sums)(v, v, v, v, four);
    return (double)four[0];
}

/* The sum over i of (x + more)_i y_i, in its lanes; more may be NULL. */
TNI_INLINE TNI_V TNI_T(scan_dot)(const TNI_REAL *x, const TNI_REAL *more, const TNI_REAL *y, int64_t n)
{
    TNI_V even = TNI_SET((TNI_REAL)0), odd = even;
    for (int64_t i = 0; i < n; i += TNI_W) {
        const int k = TNI_T(lanes)(n - i);
        TNI_V     v = TNI_LOAD(x + i, k);
        if (more) v = v + TNI_LOAD(more + i, k);
        if (i / TNI_W % 2 == 0) even = TNI_FMA(v, TNI_LOAD(y + i, k), even);
        else odd = TNI_FMA(v, TNI_LOAD(y + i, k), odd);
    }
    return even + odd;
}

/* out = x factor + y other, or x factor if y is NULL */
TNI_INLINE void TNI_T(scan_add)(TNI_REAL *out, const TNI_REAL *x, TNI_REAL factor, const TNI_REAL *y, TNI_REAL other,
                                int64_t n)
{
    for (int64_t i = 0; i < n; i += TNI_W) {
        const int k = TNI_T(lanes)(n - i);
        TNI_V     v = TNI_LOAD(x + i, k) * TNI_SET(factor);
        if (y) v = TNI_FMA(TNI_LOAD(y + i, k), TNI_SET(other), v);
        TNI_STORE(out + i, v, k);
    }
}

/* The norms of a chain's states, in their places, become the logarithms of their scales. */
TNI_FAST void TNI_T(scan_logs)(TNI_REAL *norms, int64_t n, bool reverse)
{
    double  sum = 0;
    int64_t i;
    for (int64_t k = 0; k < n; k += TNI_W) {
        const int lanes = TNI_T(lanes)(n - k);
        TNI_REAL *at = norms + (reverse ? n - k - lanes : k);
#if TNI_BITS == 32
        TNI_STORE(at, TNI_T(log_of)(TNI_LOAD(at, lanes)), lanes);
#else
        for (i = 0; i < lanes; i++) at[i] = log(at[i]);
#endif
        for (i = 0; i < lanes; i++) {
            TNI_REAL *to = at + (reverse ? lanes - 1 - i : i);
            sum += (double)*to;
            *to = (TNI_REAL)sum;
        }
    }
}

/* Requests the lines of `count` numbers of part `part` of n of the chains, `step` numbers apart, before they are read, or
   written if `write` is set: the next lines are where the processor does not expect them. */
TNI_INLINE void TNI_T(scan_request)(const bool write, const TNI_REAL *at, int64_t step, int64_t chains, int64_t count,
                                    int64_t part, int64_t n)
{
#ifdef __GNUC__
    const int64_t line = 64 / (int64_t)sizeof *at, end = (part + 1) * chains / n;
    for (int64_t i = part * chains / n; i < end; i++)
        for (int64_t k = 0; k < count; k += line) {
            if (write) __builtin_prefetch(at + i * step + k, 1);
            else __builtin_prefetch(at + i * step + k);
        }
#else
    (void)write; (void)at; (void)step; (void)chains; (void)count; (void)part; (void)n;
#endif
}

/* Matrices: a task is a chain. */

TNI_FAST void TNI_T(scan_task)(void *arg, int64_t task, int worker)
{
    const tni_scans   *p = (const tni_scans *)arg;
    const tni_prefixes s = p->s;
    const TNI_REAL    *m = (const TNI_REAL *)p->call->in[0].data;
    TNI_REAL          *y = (TNI_REAL *)p->call->out[0].data, *logs = (TNI_REAL *)p->call->out[1].data;
    TNI_REAL          *r = (TNI_REAL *)p->call->out[2].data, *to = NULL;
    TNI_REAL           before = 1;                          /* the norm that the last product still has */
    (void)worker;
    for (int64_t k = 0; k < s.states; k++) {
        const int64_t   at = tni_prefix_place(&s, task, k);
        const TNI_REAL *site = m + tni_prefix_site(&s, task, k) * s.size;
        TNI_REAL       *from = to;
        bool            done = false;
        to = y + at * s.size;
        if (k == 0) memcpy(to, site, sizeof *to * (size_t)s.size);
        else {
            const TNI_REAL *ahead = s.d < 32 || k + 1 == s.states ? NULL : site + (s.reverse ? -s.size : s.size);
            TNI_T(chain_multiply)(s.reverse ? site : from, false, s.reverse ? from : site, to, s.d, ahead);
        }
        TNI_REAL norm = (TNI_REAL)sqrt(TNI_T(scan_sum)(TNI_T(scan_dot)(to, NULL, to, s.size)));
        if (!(norm > (TNI_REAL)(1.0 / 65536) && norm < (TNI_REAL)65536)) {
            norm = (TNI_REAL)TNI_T(chain_norm)(to, s.size, true);
            done = true;
        }
        if (k > 0 && before != 1) TNI_T(scan_add)(from, from, 1 / before, NULL, 0, s.size);
        logs[at] = norm / before;
        if (r) r[at] = logs[at];
        before = done ? 1 : norm;
    }
    if (to && before != 1) TNI_T(scan_add)(to, to, 1 / before, NULL, 0, s.size);
    TNI_T(scan_logs)(logs + task * s.states, s.states, s.reverse);
}

TNI_FAST void TNI_T(scan_backward_task)(void *arg, int64_t task, int worker)
{
    const tni_scans   *p = (const tni_scans *)arg;
    const tni_prefixes s = p->s;
    const tn_call     *c = p->call;
    const TNI_REAL    *m = (const TNI_REAL *)c->in[0].data, *y = (const TNI_REAL *)c->in[1].data;
    const TNI_REAL    *r = (const TNI_REAL *)c->in[2].data, *dy = (const TNI_REAL *)c->in[3].data;
    const TNI_REAL    *dlog = (const TNI_REAL *)c->in[4].data;
    TNI_REAL          *dm = (TNI_REAL *)c->out[0].data, *z = (TNI_REAL *)(void *)(p->scratch + (size_t)worker * p->each);
    TNI_REAL          *next = z + s.size, *transposed = next + s.size, *product = transposed + s.size;
    double             later = 0;
    memset(z, 0, sizeof *z * (size_t)s.size);
    for (int64_t k = s.states - 1; k >= 0; k--) {
        const int64_t   at = tni_prefix_place(&s, task, k), site = tni_prefix_site(&s, task, k) * s.size;
        const TNI_REAL *before = y + tni_prefix_place(&s, task, k > 0 ? k - 1 : 0) * s.size, *now = y + at * s.size;
        const TNI_REAL *given = dy + at * s.size;
        TNI_REAL       *to = c->accumulate ? product : dm + site;
        const TNI_V     by = TNI_SET(r[at] == 0 ? 0 : 1 / r[at]);
        const TNI_REAL *m_ahead = NULL, *y_ahead = NULL;
        if (k > 1) {                                        /* the sites pass backwards */
            const int64_t ahead = s.reverse ? s.size : -s.size;
            if (s.d > 32) {                                 /* requests in one go would wait for each other */
                m_ahead = m + site + ahead;
                y_ahead = before + ahead;
            } else {
                TNI_T(scan_request)(false, m + site + ahead, 0, 1, s.size, 0, 1);
                TNI_T(scan_request)(false, before + ahead, 0, 1, s.size, 0, 1);
                TNI_T(scan_request)(false, given + ahead, 0, 1, s.size, 0, 1);
                TNI_T(scan_request)(true, dm + site + ahead, 0, 1, s.size, 0, 1);
            }
        }
        later = r[at] == 0 ? 0 : later + (double)dlog[at];
        TNI_V along = TNI_SET((TNI_REAL)(later - TNI_T(scan_sum)(TNI_T(scan_dot)(z, given, now, s.size))));
        for (int64_t i = 0; i < s.size; i += TNI_W) {
            const int lanes = TNI_T(lanes)(s.size - i);
            TNI_V     v = TNI_LOAD(z + i, lanes) + TNI_LOAD(given + i, lanes);
            TNI_STORE(z + i, TNI_FMA(TNI_LOAD(now + i, lanes), along, v) * by, lanes);
        }
        if (k == 0) memcpy(to, z, sizeof *to * (size_t)s.size);
        else {
            TNI_T(chain_transpose)(s.reverse ? before : m + site, transposed, s.d);
            TNI_T(chain_multiply)(s.reverse ? z : before, !s.reverse, s.reverse ? transposed : z, to, s.d, m_ahead);
            TNI_T(chain_multiply)(s.reverse ? m + site : z, s.reverse, s.reverse ? z : transposed, next, s.d, y_ahead);
            TNI_REAL *swap = z; z = next; next = swap;
        }
        if (c->accumulate) TNI_T(scan_add)(dm + site, dm + site, 1, product, 1, s.size);
    }
}

/* States: rows of up to TNI_SCAN_GROUP chains, four at a time. Rows past the last one repeat it. */

/* [e,s,f] -> [f,s,e] */
TNI_FAST void TNI_T(scan_transpose_task)(void *arg, int64_t task, int worker)
{
    const tni_scans *p = (const tni_scans *)arg;
    const int64_t    d = p->s.d, S = p->features, row = d * S * (int64_t)sizeof(TNI_REAL);
    const TNI_REAL  *from = (const TNI_REAL *)p->cores->data + task * d * d * S;
    TNI_REAL        *to = (TNI_REAL *)(void *)p->shared + task * d * d * S;
    (void)worker;
    for (int64_t i = 0; i < S; i++)
        tni_copy_transposed((char *)(to + i * d), row, (const char *)(from + i * d), row, d, d, (int64_t)sizeof *to);
}

/* out [rows, s d] = x [rows,d] times the core of the step to state k, as it is or transposed. spare [d,d] */
TNI_FAST void TNI_T(scan_step)(const tni_scans *p, int64_t chain, int64_t k, const TNI_REAL *x, TNI_REAL *out,
                               TNI_REAL *spare, int64_t rows)
{
    const int64_t        d = p->s.d, size = d * d * p->features;
    const int64_t        site = p->phi && p->cores->shape[0] == 1 ? 0 : tni_prefix_site(&p->s, p->phi ? 0 : chain, k);
    TNI_T(chain_factors) f;
    f.a = x;
    f.b = (const TNI_REAL *)p->cores->data + site * size;
    if (p->transposed && p->phi) f.b = (const TNI_REAL *)(const void *)p->shared + site * size;
    else if (p->transposed) {
        TNI_T(chain_transpose)(f.b, spare, d);
        f.b = spare;
    }
    f.out = out;
    f.ahead = NULL;
    f.a_row = f.depth = d;
    f.a_column = 1;
    f.b_row = f.out_row = f.columns = d * p->features;
    f.rows = rows;
    TNI_T(chain_multiply_by)(&f);
}

/* x [rows,d] = scale sum_s phi[s] t[s,:], rows of phi `step` numbers apart, scale NULL: 1. squares, if not NULL: |x|^2 */
TNI_FAST void TNI_T(scan_combine)(const TNI_REAL *t, const TNI_REAL *phi, int64_t step, const TNI_REAL *scale, TNI_REAL *x,
                                  TNI_REAL *squares, int64_t rows, int64_t d, int64_t features)
{
    for (int64_t i = 0; i < rows; i += 4) {
        TNI_V sums[4];
        for (int64_t q = 0; q < 4; q++) {
            const int64_t   row = tni_min(i + q, rows - 1);
            const TNI_REAL *from = t + row * features * d, *by = phi + row * step;
            TNI_V           total = TNI_SET((TNI_REAL)0);
            for (int64_t f = 0; f < d; f += TNI_W) {
                const int k = TNI_T(lanes)(d - f);
                TNI_V     sum = TNI_SET((TNI_REAL)0);
                for (int64_t j = 0; j < features; j++) sum = TNI_FMA(TNI_SET(by[j]), TNI_LOAD(from + j * d + f, k), sum);
                if (scale) sum = sum * TNI_SET(scale[row]);
                TNI_STORE(x + row * d + f, sum, k);
                total = TNI_FMA(sum, sum, total);
            }
            sums[q] = total;
        }
        if (squares) TNI_T(lane_sums)(sums[0], sums[1], sums[2], sums[3], squares + i);
    }
}

TNI_FAST void TNI_T(scan_states_task)(void *arg, int64_t task, int worker)
{
    static const TNI_REAL one = 1;
    const TNI_REAL     limit = (TNI_REAL)4294967296.0;       /* of squared norms, as in the scan of matrices */
    const tni_scans   *p = (const tni_scans *)arg;
    const tni_prefixes s = p->s;
    const tn_view     *v = &p->call->in[p->phi ? 0 : 1];
    const int64_t      d = s.d, S = p->features, first = task * p->group, rows = tni_min(p->group, s.batch - first);
    TNI_REAL          *y = (TNI_REAL *)p->call->out[0].data, *logs = (TNI_REAL *)p->call->out[1].data;
    TNI_REAL          *r = (TNI_REAL *)p->call->out[2].data, *x = (TNI_REAL *)(void *)(p->scratch + (size_t)worker * p->each);
    TNI_REAL          *t = x + p->group * d, *spare = t + p->group * d * S;
    TNI_REAL           squares[TNI_SCAN_GROUP], norm[TNI_SCAN_GROUP], inverse[TNI_SCAN_GROUP];
    int64_t            i;
    for (int64_t k = 0; k < s.states; k++) {
        int64_t         at = tni_prefix_place(&s, first, k);
        const TNI_REAL *phi = p->phi && k > 0 ? (const TNI_REAL *)p->phi->data + tni_prefix_site(&s, first, k) * S : &one;
        if (k == 0)
            for (i = 0; i < rows; i++)
                memcpy(t + i * d, (const TNI_REAL *)v->data + (v->shape[0] > 1 ? first + i : 0) * d, sizeof *t * (size_t)d);
        else TNI_T(scan_step)(p, first, k, x, t, spare, rows);
        TNI_T(scan_combine)(t, phi, phi == &one ? 0 : s.n * S, k > 0 ? inverse : NULL, x, squares, rows, d, k > 0 ? S : 1);
        for (i = 0; i < rows; i += TNI_W) {
            const int lanes = TNI_T(lanes)(rows - i);
#if TNI_BITS == 32
            TNI_STORE(norm + i, TNI_SQRT(TNI_LOAD(squares + i, lanes)), lanes);
#else
            for (int q = 0; q < lanes; q++) norm[i + q] = sqrt(squares[i + q]);
#endif
            TNI_STORE(inverse + i, TNI_SET((TNI_REAL)1) / TNI_LOAD(norm + i, lanes), lanes);
        }
        for (i = 0; i < rows; i++, at += s.states) {
            if (!(squares[i] > 1 / limit && squares[i] < limit)) {
                norm[i] = (TNI_REAL)TNI_T(chain_norm)(x + i * d, d, true);
                inverse[i] = 1;
            }
            TNI_T(scan_add)(y + at * d, x + i * d, inverse[i], NULL, 0, d);
            logs[at] = norm[i];
            if (r) r[at] = norm[i];
        }
    }
    for (i = 0; i < rows; i++) TNI_T(scan_logs)(logs + (first + i) * s.states, s.states, s.reverse);
}

/* The adjoints of the states k of all rows, from their carries x, in place; z, if not NULL, gets them, too. */
TNI_FAST void TNI_T(scan_adjoints)(const tni_scans *p, int64_t first, int64_t rows, int64_t k, TNI_REAL *x, TNI_REAL *z,
                                   double *later)
{
    const tn_view  *in = p->call->in + (p->phi ? 2 : 1);              /* y, r, dy, dlog */
    const TNI_REAL *y = (const TNI_REAL *)in[0].data, *r = (const TNI_REAL *)in[1].data;
    const TNI_REAL *dy = (const TNI_REAL *)in[2].data, *dlog = (const TNI_REAL *)in[3].data;
    const int64_t   d = p->s.d;
    for (int64_t i = 0; i < rows; i += 4) {
        TNI_V    sums[4];
        TNI_REAL dot[4];
        for (int64_t q = 0; q < 4; q++) {
            const int64_t row = tni_min(i + q, rows - 1), at = tni_prefix_place(&p->s, first + row, k) * d;
            sums[q] = TNI_T(scan_dot)(dy + at, x + row * d, y + at, d);
        }
        TNI_T(lane_sums)(sums[0], sums[1], sums[2], sums[3], dot);
        for (int64_t q = 0; q < 4 && i + q < rows; q++) {
            const int64_t row = i + q, at = tni_prefix_place(&p->s, first + row, k);
            const TNI_V   by = TNI_SET(r[at] == 0 ? 0 : 1 / r[at]);
            later[row] = r[at] == 0 ? 0 : later[row] + (double)dlog[at];
            TNI_V along = TNI_SET((TNI_REAL)(later[row] - (double)dot[q]));
            for (int64_t f = 0; f < d; f += TNI_W) {
                const int lanes = TNI_T(lanes)(d - f);
                TNI_V     v = TNI_LOAD(x + row * d + f, lanes) + TNI_LOAD(dy + at * d + f, lanes);
                v = TNI_FMA(TNI_LOAD(y + at * d + f, lanes), along, v) * by;
                TNI_STORE(x + row * d + f, v, lanes);
                if (z) TNI_STORE(z + (p->phi ? at : first) * d + f, v, lanes);
            }
        }
    }
}

TNI_FAST void TNI_T(scan_states_backward_task)(void *arg, int64_t task, int worker)
{
    static const TNI_REAL one = 1;
    const tni_scans   *p = (const tni_scans *)arg;
    const tni_prefixes s = p->s;
    const tn_call     *c = p->call;
    const int64_t      d = s.d, S = p->features, first = task * p->group, rows = tni_min(p->group, s.batch - first);
    const TNI_REAL    *y = (const TNI_REAL *)c->in[p->phi ? 2 : 1].data;
    TNI_REAL          *given = (TNI_REAL *)c->out[0].data, *z = (TNI_REAL *)c->out[1].data;     /* of phi or the matrices */
    TNI_REAL          *x = (TNI_REAL *)(void *)(p->scratch + (size_t)worker * p->each), *t = x + p->group * d;
    TNI_REAL          *spare = t + p->group * d * S;
    double             later[TNI_SCAN_GROUP];
    for (int64_t i = 0; i < rows; i++) later[i] = 0;
    memset(x, 0, sizeof *x * (size_t)(rows * d));
    for (int64_t k = s.states - 1; k >= 0; k--) {
        const int64_t site = tni_prefix_site(&s, first, k);
        TNI_T(scan_adjoints)(p, first, rows, k, x, p->phi || k == 0 ? z : NULL, later);
        if (k == 0) break;
        TNI_T(scan_step)(p, first, k, x, t, spare, rows);
        if (!p->phi) {
            const TNI_REAL *before = y + tni_prefix_place(&s, first, k - 1) * d;
            for (int64_t j = 0; given && j < d; j++) {
                TNI_REAL *to = given + (site * d + j) * d;
                TNI_T(scan_add)(to, s.reverse ? before : x, s.reverse ? x[j] : before[j], c->accumulate ? to : NULL, 1, d);
            }
            TNI_T(scan_combine)(t, &one, 0, NULL, x, NULL, 1, d, 1);
            continue;
        }
        for (int64_t j = 0; given && j < S; j++)
            for (int64_t i = 0; i < rows; i += 4) {
                TNI_V    sums[4];
                TNI_REAL dot[4];
                for (int64_t q = 0; q < 4; q++) {
                    const int64_t row = tni_min(i + q, rows - 1);
                    const int64_t at = tni_prefix_place(&s, first + row, k - 1) * d;
                    sums[q] = TNI_T(scan_dot)(t + (row * S + j) * d, NULL, y + at, d);
                }
                TNI_T(lane_sums)(sums[0], sums[1], sums[2], sums[3], dot);
                for (int64_t q = 0; q < 4 && i + q < rows; q++) {
                    TNI_REAL *to = given + (site + (i + q) * s.n) * S + j;
                    *to = c->accumulate ? *to + dot[q] : dot[q];
                }
            }
        TNI_T(scan_combine)(t, (const TNI_REAL *)p->phi->data + site * S, s.n * S, NULL, x, NULL, rows, d, S);
    }
}

#endif
