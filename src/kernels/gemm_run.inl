/* ---- gemm as a whole ---------------------------------------------------- >>pass-gemm-run */

/* The whole product, in blocks of `bytes`. */
TNI_FAST void TNI_T(gemm_one)(TNI_T(gemm) *g, const tni_pool *pool, char *blocks, int64_t bytes)
{
    const int64_t size = (int64_t)sizeof(TNI_REAL);
    g->panels_a = (TNI_REAL *)(void *)blocks;
    g->panels_b = (TNI_REAL *)(void *)(blocks + bytes);
    if (TNI_FEW && g->few) {
        TNI_T(gemm_few_run)(g, pool);
        return;
    }
    int64_t slabs = tni_max(tni_ceil_div(g->k, TNI_GEMM_DEPTH / size), 1);
    int64_t deep = tni_ceil_div(g->k, slabs);
    int64_t lines = tni_min(bytes, TNI_GEMM_LARGE) / size / tni_max(deep, 1);
    /* A's panels, if they are few, are packed for all columns, which then need no blocks. */
    g->by_columns = g->m <= tni_min(lines / TNI_MR * TNI_MR, TNI_GEMM_ROWS) && g->m <= g->n;
    int64_t most_cols = g->by_columns ? g->n : lines / TNI_NR * TNI_NR;
    if (most_cols < g->n) most_cols = tni_ceil_div(tni_ceil_div(g->n, tni_ceil_div(g->n, most_cols)), TNI_NR) * TNI_NR;
    g->rows = g->m;
    for (g->j0 = 0; g->j0 < g->n; g->j0 += most_cols) {
        g->cols = tni_min(most_cols, g->n - g->j0);
        for (int64_t s = 0; s < slabs; s++) {
            g->k0 = s * deep;
            g->depth = tni_max(tni_min(deep, g->k - g->k0), 0);
            TNI_T(gemm_block)(g, pool, bytes);
        }
    }
}

/* C^T = B^T A^T */
TNI_FAST void TNI_T(gemm_swap)(TNI_T(gemm) *g)
{
    TNI_T(gemm) from = *g;
    g->m = from.n;                g->n = from.m;
    g->a = from.b;                g->b = from.a;
    g->a_row = from.b_col;        g->a_col = from.b_row;
    g->b_row = from.a_col;        g->b_col = from.a_row;
    g->c_row = from.c_col;        g->c_col = from.c_row;
    g->bias_row = from.bias_col;  g->bias_col = from.bias_row;
    g->codes = NULL;
}

/* Product `index` of the call. */
TNI_FAST TNI_T(gemm) TNI_T(gemm_matrix)(const tn_call *c, int64_t index)
{
    const tn_view *a = &c->in[0], *b = &c->in[1], *bias = &c->in[2], *out = &c->out[0];
    const int      row = out->rank - 2, column = out->rank - 1;
    TNI_T(gemm)    g;
    memset(&g, 0, sizeof g);
    g.m = out->shape[row];
    g.n = out->shape[column];
    g.k = a->shape[column];
    g.a = (const TNI_REAL *)a->data + tni_gemm_offset(out, a, index);
    g.b = (const TNI_REAL *)b->data + tni_gemm_offset(out, b, index);
    g.c = (TNI_REAL *)out->data + tni_gemm_offset(out, out, index);
    g.a_row = a->strides[row];
    g.a_col = a->strides[column];
    g.b_row = b->strides[row];
    g.b_col = b->strides[column];
    g.c_row = out->strides[row];
    g.c_col = out->strides[column];
    g.alpha = (TNI_REAL)c->f[0];
    g.beta = (TNI_REAL)c->f[1];
    if (c->n_in > 2 && bias->data) {
        g.bias = (const TNI_REAL *)bias->data;
        g.bias_col = bias->strides[0];
    }
    if (c->n_in > 4) {
        g.codes = (const uint32_t *)c->in[3].data;
        g.words = c->in[3].strides[0];
        g.scales = (const float *)c->in[4].data;
    }
    return g;
}

/* The product is transposed if C is stored by columns, or has few columns and A is transposed, so that vectors are
   contiguous. Few columns become few rows; tiles are faster once they fill their vectors. */
TNI_FAST void TNI_T(gemm_orient)(TNI_T(gemm) *g, int64_t bytes)
{
    const bool    by_columns = g->c_col != 1 && g->c_row == 1;
    const bool    thin = g->n <= TNI_W && g->n < g->m && g->a_row == 1 && g->a_col != 1;
    const int64_t few_rows = 32, few_columns = TNI_LEVEL == 1 && TNI_BITS == 32 ? TNI_W : 16;
    const int64_t lanes = tni_ceil_div(g->n, TNI_W) * TNI_W;
    if (g->n >= g->m && (g->few = TNI_T(gemm_few)(g, few_rows, bytes)) != NULL) return;
    TNI_T(gemm) transposed = *g;
    TNI_T(gemm_swap)(&transposed);
    if (g->n < g->m) transposed.few = TNI_T(gemm_few)(&transposed, 4 * g->n > 3 * lanes ? 0 : few_columns, bytes);
    if (transposed.few || thin || by_columns) *g = transposed;
}

#if TNI_PRODUCTS
/* ---- products of small matrices, without packing ------------------------ >>pass-small
   The left factor is read element by element. */
#define TNI_TEN(X)  X(0, p0, 0) X(1, p0, 1) X(2, p0, 2) X(3, p1, 0) X(4, p1, 1) X(5, p1, 2) X(6, p2, 0) X(7, p2, 1) \
                    X(8, p2, 2) X(9, p3, 0)

/* out [rows,columns] = a b, a [rows,depth], b [depth,columns]; strides in elements, of columns 1 except for a's. Unless it is
   NULL, `ahead` is a matrix like out that is read next: each tile requests as much of it as it computes. */
typedef struct TNI_T(chain_factors) {
    const TNI_REAL *a, *b, *ahead;
    TNI_REAL       *out;
    int64_t         a_row, a_column, b_row, out_row, rows, depth, columns;
} TNI_T(chain_factors);

/* The first k numbers, k < W. AVX2's store with a mask takes as long as twelve others on some processors. */
TNI_INLINE void TNI_T(small_store)(TNI_REAL *p, TNI_V v, int k)
{
#if TNI_LEVEL == 1 && TNI_BITS == 32
    __m128 four = _mm256_castps256_ps128(v);
    if (k == TNI_W) { _mm256_storeu_ps(p, v); return; }
    if (k & 4) {
        _mm_storeu_ps(p, four);
        four = _mm256_extractf128_ps(v, 1);
        p += 4;
    }
    if (k & 2) {
        _mm_storel_pi((__m64 *)(void *)p, four);
        four = _mm_movehl_ps(four, four);
        p += 2;
    }
    if (k & 1) _mm_store_ss(p, four);
#else
    TNI_STORE(p, v, k);
#endif
}

/* n rows from row i on, of `lanes` columns from column j on; wide: of a whole vector of columns and `lanes` more. A
   single row is computed twice. */
TNI_INLINE void TNI_T(small_tile)(const int n, const bool wide, const TNI_T(chain_factors) *x, int64_t i, int64_t j,
                                  int lanes)
{
    const bool      many = n > 2 || x->rows > 1;
    const int64_t   row = many ? x->a_row : 0, step = x->a_column, out_row = many ? x->out_row : 0;
    const int       first = wide ? TNI_W : lanes;
    const TNI_REAL *p0 = x->a + i * row, *p1 = p0 + (n > 3 ? 3 * row : 0);     /* three rows each: ten pointers would */
    const TNI_REAL *p2 = p0 + (n > 6 ? 6 * row : 0), *p3 = p0 + (n > 9 ? 9 * row : 0);          /* not be in registers */
    const TNI_REAL *b = x->b + j;
#define TNI_X(r, p, k) TNI_V x##r = TNI_SET((TNI_REAL)0), y##r = x##r;
    TNI_TEN(TNI_X)
#undef TNI_X
    for (int64_t d = x->depth; d > 0; d--) {
        const TNI_V left = TNI_LOAD(b, first), right = wide ? TNI_LOAD(b + TNI_W, lanes) : left;
#define TNI_X(r, p, k) \
        if (r < n) { \
            const TNI_V v = TNI_SET(wide ? p0[r * row] : p[k * row]); \
            x##r = TNI_FMA(v, left, x##r); \
            if (wide) y##r = TNI_FMA(v, right, y##r); \
        }
        TNI_TEN(TNI_X)
#undef TNI_X
        p0 += step; p1 += step; p2 += step; p3 += step;
        b += x->b_row;
    }
    TNI_REAL *to = x->out + i * out_row + j;
#define TNI_X(r, p, k) \
    if (r < n) { \
        if (wide) TNI_STORE(to, x##r, TNI_W); \
        TNI_T(small_store)(to + (wide ? TNI_W : 0), wide ? y##r : x##r, lanes); \
        to += out_row; \
    }
    TNI_TEN(TNI_X)
#undef TNI_X
}
#undef TNI_TEN

/* Tiles are of ten, eight, four or two rows; the last one may begin with rows of the one before it, and computes them again. */
TNI_FAST void TNI_T(chain_multiply_by)(const TNI_T(chain_factors) *x)
{
    const int64_t line = 512 / TNI_BITS, rows = x->rows == 1 ? 2 : x->rows;
    int64_t       i, j, left, n, at = 0;
    for (j = 0; x->columns - j > TNI_W; j += 2 * TNI_W) {
        const int lanes = TNI_T(lanes)(x->columns - j - TNI_W);
        for (i = 0; (left = rows - i) > 0; i += n) {
            for (int64_t end = at + 8 * TNI_W; x->ahead && left > 2 && at < end; at += line) TNI_REQUEST(x->ahead, at, 1);
            n = left > 3 || (left == 3 && i > 0) ? 4 : 2;
            i = tni_min(i, rows - n);
            if (n == 4) TNI_T(small_tile)(4, true, x, i, j, lanes);
            else        TNI_T(small_tile)(2, true, x, i, j, lanes);
        }
    }
    if (j >= x->columns) return;
    const int lanes = TNI_T(lanes)(x->columns - j);
    for (i = 0; (left = rows - i) > 0; i += n) {
        n = left == 10 ? 10 : left > 7 || (left > 4 && i > 0) ? 8 : left > 3 || (left == 3 && i > 0) ? 4 : 2;
        i = tni_min(i, rows - n);
        if (n == 10)     TNI_T(small_tile)(10, false, x, i, j, lanes);
        else if (n == 8) TNI_T(small_tile)(8, false, x, i, j, lanes);
        else if (n == 4) TNI_T(small_tile)(4, false, x, i, j, lanes);
        else             TNI_T(small_tile)(2, false, x, i, j, lanes);
    }
}

/* A product of matrices of at most 32 x 32, which needs no more than that; false: it is of another kind. */
TNI_FAST bool TNI_T(gemm_is_small)(const TNI_T(gemm) *g, TNI_REAL *spare)
{
    const int64_t        most = 32, size = (int64_t)sizeof *spare;
    TNI_T(chain_factors) x;
    if (g->m > most || g->n > most || g->k > most || g->k < 1 || g->alpha != 1 || g->beta != 0 || g->bias || g->c_col != 1
        || (g->b_col != 1 && g->b_row != 1)) return false;
    x.a = g->a;
    x.a_row = g->a_row;
    x.a_column = g->a_col;
    x.b = g->b;
    x.b_row = g->b_row;
    if (g->b_col != 1) {
        tni_copy_transposed((char *)spare, g->n * size, (const char *)g->b, g->b_col * size, g->k, g->n, size);
        x.b = spare;
        x.b_row = g->n;
    }
    x.out = g->c;
    x.ahead = NULL;
    x.out_row = g->c_row;
    x.rows = g->m;
    x.depth = g->k;
    x.columns = g->n;
    TNI_T(chain_multiply_by)(&x);
    return true;
}
#endif

/* Task: `share` products, by one worker in its own blocks. */
TNI_FAST void TNI_T(gemm_some)(void *arg, int64_t task, int worker)
{
    const tni_pass *p = (const tni_pass *)arg;
    for (int64_t i = tni_pass_begin(p, task); i < tni_pass_end(p, task); i++) {
        TNI_T(gemm) g = TNI_T(gemm_matrix)(p->call, i);
        char       *blocks = p->cpu->blocks + 2 * (size_t)worker * TNI_GEMM_SMALL;
#if TNI_PRODUCTS
        if (TNI_T(gemm_is_small)(&g, (TNI_REAL *)(void *)blocks)) continue;
#endif
        TNI_T(gemm_orient)(&g, TNI_GEMM_SMALL);
        TNI_T(gemm_one)(&g, &tni_alone, blocks, TNI_GEMM_SMALL);
    }
}

#ifdef TN_USE_BLAS
TNI_FAST bool TNI_T(gemm_blas)(const TNI_T(gemm) *g)
{
    if (g->few || !tni_blas_gemm(TNI_BITS == 64 ? TN_F64 : TN_F32, g->m, g->n, g->k, g->alpha, g->a, g->a_row, g->a_col,
                                 g->b, g->b_row, g->b_col, g->beta, g->c, g->c_row, g->c_col)) return false;
    for (int64_t i = 0; g->bias && i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) g->c[i * g->c_row + j] += g->bias[i * g->bias_row + j * g->bias_col];
    return true;
}
#endif

/* The small products of a batch are divided among the threads; large ones are computed one after the other. A batch of
   contiguous rows times one matrix is a single product. */
TNI_FAST tn_status TNI_T(gemm_run)(tni_cpu *cpu, const tn_call *c)
{
    const int     axes = c->out[0].rank;
    const int64_t m = c->out[0].shape[axes - 2], n = c->out[0].shape[axes - 1];
    int64_t       batch = tni_gemm_batch(&c->out[0]), rows = m;
    tni_pass      p;
    if (batch == 0 || m == 0 || n == 0) return TN_OK;
    if (axes == 3 && c->in[1].strides[0] == 0 && c->in[0].strides[0] == m * c->in[0].strides[1]
        && c->out[0].strides[0] == m * c->out[0].strides[1]) {
        rows *= batch;
        batch = 1;
    }
    double work = 2.0 * (double)rows * (double)n * (double)c->in[0].shape[axes - 1];
    if (batch > 1 && work < (double)TNI_GEMM_CUT) {
        p.cpu = cpu;
        p.call = c;
        const int64_t reads = (m + n) * c->in[0].shape[axes - 1];      /* of few rows and columns more than operations / 32 */
        tn_task_fn    fn = TNI_T(gemm_some);
#if TNI_BITS == 32 && (TNI_LEVEL == 1 || TNI_LEVEL == 2)
        if (tni_f32_gemm_is_dots_avx2(c)) fn = tni_f32_gemm_batch_dots_avx2;
#endif
        tni_pass_run(&p, batch, tni_max((int64_t)(work / 64), reads / 2), INT64_MAX, fn);
        return TN_OK;
    }
    for (int64_t i = 0; i < batch; i++) {
        TNI_T(gemm) g = TNI_T(gemm_matrix)(c, i);
        g.m = rows;
#if TNI_PRODUCTS
        if (tni_min(rows, n) > 3 && TNI_T(gemm_is_small)(&g, (TNI_REAL *)(void *)cpu->blocks)) continue;
#endif
        TNI_T(gemm_orient)(&g, TNI_GEMM_LARGE);
#ifdef TN_USE_BLAS
        if (TNI_T(gemm_blas)(&g)) continue;
#endif
        const bool long_reads = g.few && g.k * g.n * (int64_t)sizeof(TNI_REAL) >= TNI_GEMM_FEW;
        const tni_pool *pool = long_reads || work >= (double)(64 * TNI_CPU_SHARE) ? &cpu->pool
                             : work < (double)(16 * TNI_CPU_SHARE) ? &tni_alone : &cpu->little;
        TNI_T(gemm_one)(&g, pool, cpu->blocks, (int64_t)(cpu->block_bytes / 2));
    }
    return TN_OK;
}
