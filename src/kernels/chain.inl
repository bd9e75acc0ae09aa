#if TNI_SEQUENCES
/* ---- chain: products of small square matrices, see >>op-chain ----------- >>pass-chain */
/* out = a b   all [d,d]; transposed: a^T b. ahead: a matrix that is read next, or NULL */
TNI_FAST void TNI_T(chain_multiply)(const TNI_REAL *a, bool transposed, const TNI_REAL *b, TNI_REAL *out, int64_t d,
                                    const TNI_REAL *ahead)
{
    TNI_T(chain_factors) x;
    x.a = a;
    x.b = b;
    x.out = out;
    x.ahead = ahead;
    x.a_row = transposed ? 1 : d;
    x.a_column = transposed ? d : 1;
    x.b_row = x.out_row = x.rows = x.depth = x.columns = d;
    TNI_T(chain_multiply_by)(&x);
}

/* Squares of x, added in the lanes of a vector. */
TNI_INLINE TNI_V TNI_T(chain_squares)(const TNI_REAL *x, int64_t n)
{
    TNI_V   even = TNI_SET((TNI_REAL)0), odd = even;
    int64_t i;
    for (i = 0; i + TNI_W < n; i += 2 * TNI_W) {
        TNI_V v = TNI_LOAD(x + i, TNI_W), w = TNI_LOAD(x + i + TNI_W, TNI_T(lanes)(n - i - TNI_W));
        even = TNI_FMA(v, v, even);
        odd = TNI_FMA(w, w, odd);
    }
    if (i < n) {
        TNI_V v = TNI_LOAD(x + i, TNI_T(lanes)(n - i));
        even = TNI_FMA(v, v, even);
    }
    return even + odd;
}

TNI_FAST double TNI_T(chain_total)(const TNI_REAL *x, int64_t n)
{
    TNI_REAL lane[TNI_W];
    double   total = 0;
    TNI_STORE(lane, TNI_T(chain_squares)(x, n), TNI_W);
    for (int64_t i = 0; i < TNI_W; i++) total += (double)lane[i];
    return total;
}

/* Is the norm within 2^+-16? The lanes are added in vectors, without the precision that a norm needs. */
TNI_INLINE bool TNI_T(chain_near_one)(const TNI_REAL *x, int64_t n)
{
    const TNI_REAL near_one = (TNI_REAL)4294967296.0;
    const TNI_V    squares = TNI_T(chain_squares)(x, n);
    TNI_REAL       total[4];
    TNI_T(lane_sums)(squares, squares, squares, squares, total);
    return total[0] > 1 / near_one && total[0] < near_one;
}

/* Divides x by the number that it returns: 1 if `must` is not set and the norm is within 2^+-16, so that most products of a
   chain need no second pass; else the Frobenius norm. If squares overflow or underflow, x is divided by its largest element
   first. Zeros stay zeros, an infinity becomes NaN. */
TNI_FAST double TNI_T(chain_norm)(TNI_REAL *x, int64_t n, bool must)
{
    const double limit = TNI_BITS == 32 ? 1e30 : 1e300;
    double       most = 1;
    int64_t      i;
    if (!must && TNI_T(chain_near_one)(x, n)) return 1;
    double total = TNI_T(chain_total)(x, n);
    if (!(total > 1 / limit && total < limit)) {
        for (most = 0, i = 0; i < n; i++) if (!(fabs((double)x[i]) <= most)) most = fabs((double)x[i]);
        if (most == 0) return 0;
        for (i = 0; i < n; i++) x[i] = (TNI_REAL)((double)x[i] / most);
        total = TNI_T(chain_total)(x, n);
    }
    total = sqrt(total);
    for (i = 0; i < n; i += TNI_W) {
        int k = TNI_T(lanes)(n - i);
        TNI_STORE(x + i, TNI_LOAD(x + i, k) * TNI_SET((TNI_REAL)(1 / total)), k);
    }
    return most * total;
}

/* G_(n-1), see >>op-chain. */
TNI_FAST void TNI_T(chain_seed)(TNI_REAL *g, const TNI_REAL *y, const TNI_REAL *dout, int64_t n)
{
    double dot = 0;
    for (int64_t i = 0; i < n; i++) dot += (double)y[i] * (double)dout[i];
    for (int64_t i = 0; i < n; i++) g[i] = (TNI_REAL)((double)dout[i] + ((double)dout[n] - dot) * (double)y[i]);
}

#if TNI_BITS == 32 && (TNI_LEVEL == 1 || TNI_LEVEL == 2)
/* ---- chains of TNI_W x TNI_W whose products are not kept ---------------- >>pass-chain-columns
   The product stays in registers, a column in each. Column j of the next one is the sum over k of column k times m[k,j], which
   is repeated in all lanes as it is read. Nothing is stored, moved or shuffled until the norm leaves the range, or the chain
   ends. Sums are in the order of chain_multiply. */
#if TNI_LEVEL == 2
#define TNI_COLUMNS_8(X, k) X(k, 0) X(k, 1) X(k, 2) X(k, 3) X(k, 4) X(k, 5) X(k, 6) X(k, 7)
#define TNI_COLUMNS(X, k)   TNI_COLUMNS_8(X, k) X(k, 8) X(k, 9) X(k, 10) X(k, 11) X(k, 12) X(k, 13) X(k, 14) X(k, 15)
#define TNI_ANY_ABOVE(v, limit) (_mm512_cmp_ps_mask(v, TNI_SET(limit), _CMP_NLE_UQ) != 0)       /* or NaN */
#else
#define TNI_COLUMNS(X, k)   X(k, 0) X(k, 1) X(k, 2) X(k, 3) X(k, 4) X(k, 5) X(k, 6) X(k, 7)
#define TNI_ANY_ABOVE(v, limit) (_mm256_movemask_ps(_mm256_cmp_ps(v, TNI_SET(limit), _CMP_NLE_UQ)) != 0)
#endif

/* p = p m_0 m_1 ... for at most n matrices, until the norm of p may be outside of 2^+-16. p is stored by columns. Returns how
   many there were. */
TNI_ISA TNI_FN int64_t TNI_T(chain_columns)(const TNI_REAL *m, int64_t n, TNI_REAL *p)
{
    const TNI_REAL most = (TNI_REAL)4294967296.0;
    int64_t        j;
#define TNI_LOAD_P(k, i)  TNI_V s##i = TNI_LOAD(p + i * TNI_W, TNI_W);
#define TNI_BEGIN(k, i)   TNI_V x##i = s0 * TNI_SET(m[i]);
#define TNI_STEP(k, i)    x##i = TNI_FMA(TNI_SET(m[k * TNI_W + i]), s##k, x##i);
#define TNI_NEXT(k, i)    s##i = x##i;
#define TNI_SQUARE(k, i)  if (i % 2) odd = TNI_FMA(s##i, s##i, odd); else even = TNI_FMA(s##i, s##i, even);
#define TNI_STORE_P(k, i) TNI_STORE(p + i * TNI_W, s##i, TNI_W);
    TNI_COLUMNS(TNI_LOAD_P, 0)
    for (j = 0; j < n; j++, m += TNI_W * TNI_W) {
        TNI_V even = TNI_SET(0), odd = even;
        TNI_COLUMNS(TNI_BEGIN, 0)
        TNI_COLUMNS(TNI_STEP, 1) TNI_COLUMNS(TNI_STEP, 2) TNI_COLUMNS(TNI_STEP, 3) TNI_COLUMNS(TNI_STEP, 4)
        TNI_COLUMNS(TNI_STEP, 5) TNI_COLUMNS(TNI_STEP, 6) TNI_COLUMNS(TNI_STEP, 7)
#if TNI_LEVEL == 2
        TNI_COLUMNS(TNI_STEP, 8) TNI_COLUMNS(TNI_STEP, 9) TNI_COLUMNS(TNI_STEP, 10) TNI_COLUMNS(TNI_STEP, 11)
        TNI_COLUMNS(TNI_STEP, 12) TNI_COLUMNS(TNI_STEP, 13) TNI_COLUMNS(TNI_STEP, 14) TNI_COLUMNS(TNI_STEP, 15)
#endif
        TNI_COLUMNS(TNI_NEXT, 0)
        TNI_COLUMNS(TNI_SQUARE, 0)
        even = even + odd;
        if (TNI_ANY_ABOVE(even, most / (2 * TNI_W)) || !TNI_ANY_ABOVE(even, 2 / most)) { j++; break; }
    }
    TNI_COLUMNS(TNI_STORE_P, 0)
#undef TNI_LOAD_P
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_NEXT
#undef TNI_SQUARE
#undef TNI_STORE_P
    return j;
}
#undef TNI_COLUMNS
#undef TNI_COLUMNS_8
#undef TNI_ANY_ABOVE

/* One chain from its first matrix in y [d,d] on; rest: d d numbers of workspace. Returns the logarithm of the divisors. Whether
   a product is divided is decided as for chains that are recorded, so results are bit-identical to theirs, but for the signs of
   zeros. */
TNI_FAST double TNI_T(chain_in_columns)(int64_t (*columns)(const TNI_REAL *, int64_t, TNI_REAL *), const TNI_REAL *m, int64_t n,
                                        int64_t d, TNI_REAL *y, TNI_REAL *rest)
{
    const int64_t size = (int64_t)sizeof *y;
    double        log_norm = 0;
    memcpy(y, m, (size_t)(d * d * size));
    for (int64_t j = 1; ; ) {
        double norm = TNI_T(chain_norm)(y, d * d, j == n);
        if (norm != 1) log_norm += log(norm);
        if (j == n) return log_norm;
        tni_copy_transposed((char *)rest, d * size, (const char *)y, d * size, d, d, size);
        j += columns(m + j * d * d, n - j, rest);
        tni_copy_transposed((char *)y, d * size, (const char *)rest, d * size, d, d, size);
    }
}

/* The function for matrices d x d, or NULL */
TNI_INLINE int64_t (*TNI_T(chain_columns_for)(int64_t d))(const TNI_REAL *, int64_t, TNI_REAL *)
{
    if (d == TNI_W) return TNI_T(chain_columns);
#if TNI_LEVEL == 2
    if (d == 8) return tni_f32_chain_columns_avx2;
#endif
    return NULL;
}
#endif

/* A task is one chain, whose products depend on each other. */
TNI_FAST void TNI_T(chain_task)(void *arg, int64_t task, int worker)
{
    const tn_call  *c = ((const tni_pass *)arg)->call;
    int64_t         n = c->in[0].shape[1], d = c->in[0].shape[2], dd = d * d;
    const TNI_REAL *m = (const TNI_REAL *)c->in[0].data + task * n * dd;
    TNI_REAL       *y = (TNI_REAL *)c->out[0].data + task * (dd + 1), *p = (TNI_REAL *)c->out[1].data,
                   *v = (TNI_REAL *)c->out[2].data;
    TNI_REAL       *work = (TNI_REAL *)c->out[3].data + task * 2 * dd, *to = work;
    double          log_norm = 0;
    (void)worker;
#if TNI_BITS == 32 && (TNI_LEVEL == 1 || TNI_LEVEL == 2)
    if (!p && TNI_T(chain_columns_for)(d)) {
        y[dd] = (TNI_REAL)TNI_T(chain_in_columns)(TNI_T(chain_columns_for)(d), m, n, d, y, work);
        return;
    }
#endif
    for (int64_t j = 0; j < n; j++, m += dd) {
        TNI_REAL *from = to;
        to = p ? p + (task * n + j) * dd : work + j % 2 * dd;
        if (j == 0) memcpy(to, m, sizeof *to * (size_t)dd);
        else TNI_T(chain_multiply)(from, false, m, to, d, d > 32 && j + 1 < n ? m + dd : NULL);
        double norm = TNI_T(chain_norm)(to, dd, j == n - 1);
        if (v) v[task * n + j] = (TNI_REAL)norm;
        if (norm != 1) log_norm += log(norm);
    }
    memcpy(y, to, sizeof *y * (size_t)dd);
    y[dd] = (TNI_REAL)log_norm;
}

TNI_INLINE void TNI_T(chain_transpose)(const TNI_REAL *x, TNI_REAL *out, int64_t d)
{
    const int64_t row = d * (int64_t)sizeof *x;
    tni_copy_transposed((char *)out, row, (const char *)x, row, d, d, (int64_t)sizeof *x);
}

TNI_FAST void TNI_T(chain_backward_task)(void *arg, int64_t task, int worker)
{
    const tn_call  *c = ((const tni_pass *)arg)->call;
    int64_t         n = c->in[0].shape[1], d = c->in[0].shape[2], dd = d * d, first = task * n, last = first + n - 1;
    const TNI_REAL *m = (const TNI_REAL *)c->in[0].data, *p = (const TNI_REAL *)c->in[1].data,
                   *v = (const TNI_REAL *)c->in[2].data;
    TNI_REAL       *dm = (TNI_REAL *)c->out[0].data, *work = (TNI_REAL *)c->out[1].data + task * 4 * dd;
    TNI_REAL       *g = work, *next = work + dd, *product = work + 2 * dd, *transposed = work + 3 * dd;
    double          scale = -log((double)v[last]);
    (void)worker;
    TNI_T(chain_seed)(g, p + last * dd, (const TNI_REAL *)c->in[3].data + task * (dd + 1), dd);
    for (int64_t j = last; ; j--) {
        const TNI_REAL *gradient = g;
        const TNI_REAL  factor = v[last] == 0 ? 0 : (TNI_REAL)exp(scale);
        const TNI_V     by = TNI_SET(factor);
        if (j > first) {
            TNI_T(chain_multiply)(p + (j - 1) * dd, true, g, product, d, d > 32 ? m + j * dd : NULL);
            gradient = product;
        }
        for (int64_t i = 0; i < dd; i += TNI_W) {
            int       k = TNI_T(lanes)(dd - i);
            TNI_REAL *to = dm + j * dd + i;
            TNI_V     x = by;
            if (factor != 0) x = x * TNI_LOAD(gradient + i, k);
            if (c->accumulate) x = x + TNI_LOAD(to, k);
            TNI_STORE(to, x, k);
        }
        if (j == first) break;
        TNI_T(chain_transpose)(m + j * dd, transposed, d);
        TNI_T(chain_multiply)(g, false, transposed, next, d, d > 32 && j > first + 1 ? p + (j - 2) * dd : NULL);
        double norm = TNI_T(chain_norm)(next, dd, false);
        if (norm != 0 && norm != 1) scale += log(norm);
        if (v[j - 1] != 1) scale -= log((double)v[j - 1]);
        TNI_REAL *swap = g; g = next; next = swap;
    }
}

TNI_FAST tn_status TNI_T(chain_run)(tni_cpu *cpu, const tn_call *c, tn_task_fn fn)
{
    tni_pass p;
    p.cpu = cpu;
    p.call = c;
    tni_parallel_for(&cpu->pool, c->in[0].shape[0], fn, &p);
    return TN_OK;
}

#endif /* TNI_SEQUENCES */
