#ifndef TN_NO_OPERATOR
/* ---- eigenvectors, see >>eigh-divide and >>eigh-back --------------------- >>pass-vectors */
TNI_FAST void TNI_T(vector_from)(int64_t n, const double *x, void *y)
{
    TNI_REAL *to = (TNI_REAL *)y;
    for (int64_t i = 0; i < n; i++) to[i] = (TNI_REAL)x[i];
}

enum { TNI_T(lanes_of_strip) = 1024 / TNI_BITS };       /* two cache lines */

TNI_FAST void TNI_T(vector_column)(int64_t n, const void *strip, double *y)
{
    const TNI_REAL *from = (const TNI_REAL *)strip;
    for (int64_t i = 0; i < n; i++) y[i] = (double)from[i * TNI_T(lanes_of_strip)];
}

TNI_FAST void TNI_T(vector_rotate)(int64_t n, double cosine, double sine, void *a, void *b)
{
    const TNI_V c = TNI_SET((TNI_REAL)cosine), s = TNI_SET((TNI_REAL)sine);
    TNI_REAL   *x = (TNI_REAL *)a, *y = (TNI_REAL *)b;
    for (int64_t i = 0; i < n; i += TNI_W) {
        int   k = TNI_T(lanes)(n - i);
        TNI_V u = TNI_LOAD(x + i, k), v = TNI_LOAD(y + i, k);
        TNI_STORE(x + i, c * u - s * v, k);
        TNI_STORE(y + i, s * u + c * v, k);
    }
}

TNI_FAST void TNI_T(vector_gemm)(const tni_host *h, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row,
                                 const void *b, int64_t b_row, void *c, int64_t c_row)
{
    const bool  alone = 2.0 * (double)m * (double)n * (double)k < (double)TNI_HOST_CUT;
    TNI_T(gemm) g;
    if (m == 0 || n == 0) return;
    memset(&g, 0, sizeof g);
    g.m = m;       g.n = n;       g.k = k;
    g.a = (const TNI_REAL *)a; g.a_row = a_row; g.a_col = 1;
    g.b = (const TNI_REAL *)b; g.b_row = b_row; g.b_col = 1;
    g.c = (TNI_REAL *)c;       g.c_row = c_row; g.c_col = 1;
    g.alpha = 1;
    TNI_T(gemm_orient)(&g, h->bytes);
    TNI_T(gemm_one)(&g, alone ? &tni_alone : h->pool, h->blocks, h->bytes);
}

TNI_FAST void TNI_T(vector_pack)(int width, int64_t rows, int64_t depth, const void *a, int64_t row, int64_t col, void *p,
                                 int64_t next)
{
    const TNI_REAL *from = (const TNI_REAL *)a;
    TNI_REAL       *to = (TNI_REAL *)p;
    for (int64_t i = 0; i < rows; i += width, to += next)
        TNI_T(panel)(to, width, from + i * row, row, col, (int)tni_min(width, rows - i), depth);
}

/* A panel of A is used for all strips before the next one is read. */
TNI_FAST void TNI_T(strip_times)(int64_t rows, int64_t depth, const void *panels, int64_t strips, int64_t next,
                                 const void *b, bool add, void *c)
{
    TNI_T(tile) t;
    t.depth = depth;
    t.a_row = 1;
    t.a_col = TNI_MR;
    t.b_row = t.c_row = TNI_T(lanes_of_strip);
    t.from_row = add ? t.c_row : 0;
    t.last = TNI_W;
    for (int64_t i = 0; i < rows; i += TNI_MR)
        for (int64_t s = 0; s < strips; s++)
            for (int64_t j = 0; j < TNI_T(lanes_of_strip); j += TNI_NR) {
                t.a = (const TNI_REAL *)panels + i * depth;
                t.b = (const TNI_REAL *)b + s * next + j;
                t.c = (TNI_REAL *)c + s * next + i * t.c_row + j;
                t.from = add ? t.c : TNI_T(zeros);
                TNI_T(gemm_rows)((int)tni_min(TNI_MR, rows - i), true, &t);
            }
}

TNI_FN const tni_vector_ops TNI_T(vector_ops) = {
    TNI_BITS / 8, TNI_T(lanes_of_strip), TNI_MR, TNI_T(vector_from), TNI_T(vector_column), TNI_T(vector_rotate),
    TNI_T(vector_gemm), TNI_T(vector_pack), TNI_T(strip_times)
};
#endif

#if TNI_BITS == 64 && !defined(TN_NO_OPERATOR)
/* ---- double: the inner loops of the host's algebra (>>decomp-impl) ------ >>pass-algebra */
TNI_FAST void TNI_T(host_gemm)(const tni_host *h, int64_t m, int64_t n, int64_t k, double alpha, tni_mat a, tni_mat b,
                               double beta, tni_mat c)
{
    const bool  alone = 2.0 * (double)m * (double)n * (double)k < (double)TNI_HOST_CUT;
    TNI_T(gemm) g;
    if (m == 0 || n == 0) return;
    memset(&g, 0, sizeof g);
    g.m = m;       g.n = n;       g.k = k;
    g.a = a.p;     g.a_row = a.row; g.a_col = a.col;
    g.b = b.p;     g.b_row = b.row; g.b_col = b.col;
    g.c = c.p;     g.c_row = c.row; g.c_col = c.col;
    g.alpha = alpha;
    g.beta = beta;
    TNI_T(gemm_orient)(&g, h->bytes);
    TNI_T(gemm_one)(&g, alone ? &tni_alone : h->pool, h->blocks, h->bytes);
}

TNI_FAST double TNI_T(dot)(int64_t n, const double *x, const double *y)
{
    return TNI_T(lane_sum)(TNI_T(dot_lanes)(x, y, n));
}

TNI_FAST void TNI_T(axpy)(int64_t n, double alpha, const double *x, double *y)
{
    const TNI_V by = TNI_SET(alpha);
    for (int64_t i = 0; i < n; i += TNI_W) {
        int k = TNI_T(lanes)(n - i);
        TNI_STORE(y + i, TNI_FMA(by, TNI_LOAD(x + i, k), TNI_LOAD(y + i, k)), k);
    }
}

TNI_FAST void TNI_T(scale)(int64_t n, double alpha, double *x)
{
    const TNI_V by = TNI_SET(alpha);
    for (int64_t i = 0; i < n; i += TNI_W) {
        int k = TNI_T(lanes)(n - i);
        TNI_STORE(x + i, TNI_LOAD(x + i, k) * by, k);
    }
}

TNI_FAST void TNI_T(rotate)(int64_t n, double cosine, double sine, double *x, double *y)
{
    const TNI_V c = TNI_SET(cosine), s = TNI_SET(sine);
    for (int64_t i = 0; i < n; i += TNI_W) {
        int   k = TNI_T(lanes)(n - i);
        TNI_V u = TNI_LOAD(x + i, k), v = TNI_LOAD(y + i, k);
        TNI_STORE(x + i, c * u - s * v, k);
        TNI_STORE(y + i, s * u + c * v, k);
    }
}

TNI_FAST void TNI_T(reflect3)(int64_t n, double tau, double v1, double v2, double *x, double *y, double *z)
{
    const TNI_V a = TNI_SET(v1), b = TNI_SET(v2), t0 = TNI_SET(-tau), t1 = TNI_SET(-tau * v1), t2 = TNI_SET(-tau * v2);
    for (int64_t i = 0; i < n; i += TNI_W) {
        int   k = TNI_T(lanes)(n - i);
        TNI_V p = TNI_LOAD(x + i, k), q = TNI_LOAD(y + i, k), r = TNI_LOAD(z + i, k);
        TNI_V sum = TNI_FMA(a, q, TNI_FMA(b, r, p));
        TNI_STORE(x + i, TNI_FMA(t0, sum, p), k);
        TNI_STORE(y + i, TNI_FMA(t1, sum, q), k);
        TNI_STORE(z + i, TNI_FMA(t2, sum, r), k);
    }
}

/* Columns [j,j+k) of four rows of upper_times: each number of A serves its row and, off the diagonal block, its column. */
#define TNI_FOUR(X) X(0) X(1) X(2) X(3)
TNI_INLINE void TNI_T(upper_columns)(const bool diagonal, const int k, double *a0, int64_t stride, const TNI_V *vi,
                                     const TNI_V *wi, const TNI_V *xi, const double *v, const double *w, const double *x,
                                     double *y, TNI_V *sums)
{
    double *a1 = a0 + stride, *a2 = a1 + stride, *a3 = a2 + stride;
    TNI_V   b0 = TNI_LOAD(a0, k), b1 = TNI_LOAD(a1, k), b2 = TNI_LOAD(a2, k), b3 = TNI_LOAD(a3, k), xj = TNI_LOAD(x, k);
    TNI_V   vj = TNI_LOAD(v, k), wj = TNI_LOAD(w, k);
#define TNI_STEP(r) b##r = TNI_FMA(vi[r], wj, TNI_FMA(wi[r], vj, b##r)); TNI_STORE(a##r, b##r, k);
    TNI_FOUR(TNI_STEP)
#undef TNI_STEP
#define TNI_STEP(r) sums[r] = TNI_FMA(b##r, xj, sums[r]);
    TNI_FOUR(TNI_STEP)
#undef TNI_STEP
    if (diagonal) return;
    TNI_STORE(y, TNI_FMA(xi[0], b0, TNI_FMA(xi[1], b1, TNI_LOAD(y, k))) + TNI_FMA(xi[2], b2, xi[3] * b3), k);
}

/* Four rows at a time, that begin at multiples of four: the block on the diagonal, of which both triangles are kept, then
   vectors that begin at multiples of TNI_W (not at aligned addresses, on which the order of sums would then depend). Rows of
   the first four that are before `from` are stored as they were. */
TNI_FAST void TNI_T(upper_times)(int64_t from, int64_t end, int64_t n, double *a, int64_t stride, const double *v,
                                 const double *w, const double *x, double *y)
{
    int64_t i, j;
    memset(y + from, 0, (size_t)(n - from) * sizeof *y);
#define TNI_COLUMNS(diagonal, k) \
    TNI_T(upper_columns)(diagonal, k, row + j, stride, vi, wi, xi, v + j, w + j, x + j, y + j, sums)
    for (i = from / 4 * 4; i < end && i + 4 <= n; i += 4) {
        double *row = a + i * stride;
        TNI_V   vi[4], wi[4], xi[4], sums[4];
#define TNI_STEP(q) vi[q] = TNI_SET(i + q >= from ? -v[i + q] : 0); wi[q] = TNI_SET(i + q >= from ? -w[i + q] : 0); \
                    xi[q] = TNI_SET(x[i + q]); sums[q] = TNI_SET(0);
        TNI_FOUR(TNI_STEP)
#undef TNI_STEP
        for (j = i; j < i + 4; j += TNI_W) TNI_COLUMNS(true, TNI_W < 4 ? TNI_W : 4);
        j = i + 4;
        if (j % TNI_W != 0 && j < n) {
            TNI_COLUMNS(false, TNI_T(lanes)(tni_min(4, n - j)));
            j += 4;
        }
        for (; j + TNI_W <= n; j += TNI_W) TNI_COLUMNS(false, TNI_W);
        if (j < n) TNI_COLUMNS(false, (int)(n - j));
#define TNI_STEP(q) if (i + q >= from) y[i + q] += TNI_T(lane_sum)(sums[q]);
        TNI_FOUR(TNI_STEP)
#undef TNI_STEP
    }
#undef TNI_COLUMNS
    for (i = tni_max(i, from); i < end; i++)                 /* at most three */
        for (j = i; j < n; j++) {
            double *b = a + i * stride + j;
            *b -= v[i] * w[j] + w[i] * v[j];
            y[i] += *b * x[j];
            if (j > i) y[j] += *b * x[i];
        }
}

/* Four vectors of each row at a time; the next rotation reuses y, the upper of the two rotated rows. */
TNI_FAST void TNI_T(rotate_strip)(const double *list, const double *end, double *strip)
{
#define TNI_BEGIN(q) TNI_V y##q = TNI_LOAD(row + q * TNI_W, TNI_W);
#define TNI_STEP(q)  { \
        TNI_V x = TNI_LOAD(row + q * TNI_W, TNI_W); \
        TNI_STORE(row + TNI_STRIP + q * TNI_W, s * x + c * y##q, TNI_W); \
        y##q = c * x - s * y##q; }
#define TNI_END(q)   TNI_STORE(row + q * TNI_W, y##q, TNI_W);
    for (int at = 0; at < TNI_STRIP; at += 4 * TNI_W) {
        const double *p = list;
        while (p < end) {
            double *row = strip + (int64_t)p[0] * TNI_STRIP + at;
            int64_t count = (int64_t)p[1];
            TNI_FOUR(TNI_BEGIN)
            for (p += 2; count > 0; count--, p += 2) {
                const TNI_V c = TNI_SET(p[0]), s = TNI_SET(p[1]);
                row -= TNI_STRIP;
                TNI_FOUR(TNI_STEP)
            }
            TNI_FOUR(TNI_END)
        }
    }
#undef TNI_BEGIN
#undef TNI_STEP
#undef TNI_END
}
#undef TNI_FOUR

/* Unused lanes are one. */
TNI_INLINE TNI_V TNI_T(gaps)(const double *d, TNI_V origin, TNI_V tau, int k)
{
    static const double one[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const TNI_V gaps = (TNI_LOAD(d, k) - origin) - tau;
    if (k == TNI_W) return gaps;
    const TNI_V used = TNI_LOAD(one, k);
    return TNI_FMA(used, gaps, TNI_SET(1) - used);
}

TNI_INLINE TNI_V TNI_T(magnitude)(TNI_V v)
{
#if TNI_LEVEL == 3
    return TNI_MM(absq)(v);
#elif TNI_LEVEL > 0
    return TNI_MAX(v, TNI_SET(0) - v);
#else
    double lane[TNI_W];
    memcpy(lane, &v, sizeof v);
    for (int i = 0; i < TNI_W; i++) lane[i] = fabs(lane[i]);
    memcpy(&v, lane, sizeof v);
    return v;
#endif
}

TNI_FAST tni_sums TNI_T(poles)(int64_t n, const double *d, const double *z, double origin, double tau)
{
    const TNI_V o = TNI_SET(origin), t = TNI_SET(tau), zero = TNI_SET(0);
    TNI_V       value0 = zero, size0 = zero, slope0 = zero, bend0 = zero, value1 = zero, size1 = zero, slope1 = zero, bend1 = zero;
    int64_t     i = 0;
    tni_sums    sums;
#define TNI_STEP(q, k) { \
        const TNI_V y = TNI_LOAD(z + i + q * TNI_W, k), r = TNI_SET(1) / TNI_T(gaps)(d + i + q * TNI_W, o, t, k); \
        const TNI_V p = y * r, part = y * p; \
        value##q = value##q + part; \
        size##q = size##q + TNI_T(magnitude)(part); \
        slope##q = TNI_FMA(p, p, slope##q); \
        bend##q = TNI_FMA(p * r, p, bend##q); }
    for (; i + 2 * TNI_W <= n; i += 2 * TNI_W) {
        TNI_STEP(0, TNI_W)
        TNI_STEP(1, TNI_W)
    }
    for (; i < n; i += TNI_W) TNI_STEP(0, TNI_T(lanes)(n - i))
#undef TNI_STEP
    sums.value = TNI_T(lane_sum)(value0 + value1);
    sums.size = TNI_T(lane_sum)(size0 + size1);
    sums.slope = TNI_T(lane_sum)(slope0 + slope1);
    sums.bend = TNI_T(lane_sum)(bend0 + bend1);
    return sums;
}

TNI_FAST void TNI_T(weights)(int64_t n, const double *d, double origin, double tau, double pole, double *w)
{
    const TNI_V o = TNI_SET(origin), t = TNI_SET(tau), p = TNI_SET(pole), zero = TNI_SET(0);
    for (int64_t i = 0; i < n; i += TNI_W) {
        int k = TNI_T(lanes)(n - i);
        TNI_STORE(w + i, TNI_LOAD(w + i, k) * (TNI_T(gaps)(d + i, o, t, k) / TNI_T(gaps)(d + i, p, zero, k)), k);
    }
}

TNI_FAST void TNI_T(pole_vector)(int64_t n, const double *d, const double *z, double origin, double tau, double *row)
{
    const TNI_V o = TNI_SET(origin), t = TNI_SET(tau);
    TNI_V       sum = TNI_SET(0);
    for (int64_t i = 0; i < n; i += TNI_W) {
        int   k = TNI_T(lanes)(n - i);
        TNI_V q = TNI_LOAD(z + i, k) / TNI_T(gaps)(d + i, o, t, k);
        sum = TNI_FMA(q, q, sum);
        TNI_STORE(row + i, q, k);
    }
    TNI_T(scale)(n, 1 / sqrt(TNI_T(lane_sum)(sum)), row);
}

TNI_FAST void TNI_T(pair_products)(int64_t n, double weight, double *first, double *second, const double *pp, double *k)
{
    const TNI_V half = TNI_SET(0.5 * weight), whole = TNI_SET(weight);
    for (int64_t i = 0; i < n; i += TNI_W) {
        int   lanes = TNI_T(lanes)(n - i);
        TNI_V a = TNI_LOAD(first + i, lanes), b = TNI_LOAD(first + n + i, lanes), c = TNI_LOAD(second + i, lanes);
        TNI_V d = TNI_LOAD(second + n + i, lanes);
        TNI_STORE(k + i, half * TNI_FMA(a, d, b * c), lanes);
        if (pp) {
            TNI_V p = whole * TNI_LOAD(pp + i, lanes);
            TNI_STORE(first + i, p * d, lanes);
            TNI_STORE(first + n + i, p * c, lanes);
            TNI_STORE(second + i, p * b, lanes);
            TNI_STORE(second + n + i, p * a, lanes);
        }
    }
}

TNI_FN const tni_algebra TNI_T(algebra) = {
    TNI_T(host_gemm), TNI_T(dot), TNI_T(axpy), TNI_T(scale), TNI_T(rotate), TNI_T(reflect3), TNI_T(upper_times),
    TNI_T(rotate_strip), TNI_T(poles), TNI_T(weights), TNI_T(pole_vector),
    TNI_T(pair_products), &TNI_T(vector_ops)
};
#endif /* double */
