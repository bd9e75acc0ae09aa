#if TNI_BF16 && !defined(TN_NO_SEQUENCES)
/* ---- attention by bfloat16 products ------------------------------------- >>attention-bf16
   Attention of BF16 operands where desc.gemm_precision is TN_GEMM_BF16, see >>op-attention. A task is a head; its operands
   are packed once as strips, and scores are computed in tiles of 32 keys by 32 queries, as s[key][query]. A letter stands for
   a matrix of tokens by columns:
       s = K Q^T    dp = V dO^T    o = P^T V    dq = dS^T K    dv = P dO    dk = dS Q
   A left factor is made of scores, except in the first two. It is rounded to BF16, once: P = exp(s - top) in the forward
   pass, c P = c exp(s - l) and f0 dS in the backward pass, or what products of scores give for these: a relative error of up
   to 2^-9 of each term. Scores, their maxima and sums, log-sum-exps, dP and all sums of products are F32, and each result is
   rounded once. Infinities and NaN follow the rules of tn_attend; which rows nearby become NaN as well, those of the same tile
   or others, depends on the kernel.
   Dao et al. 2022, and its implementations with tensor cores */
enum { TNI_BF16_SPAN = 4, TNI_BF16_TOKENS = 32 * TNI_BF16_SPAN };   /* a block of scores, each way: in tiles, in tokens */

/* Strips are packed by tokens (lines are tokens, the depth is columns), or by columns (the other way). */
typedef struct tni_bf16_head {
    const tni_attention *t;
    tni_bf16_products_fn products, products_pairs;      /* the latter: with A packed like B, if `pairs` */
    bool     pairs;
    int64_t  b, h;
    int64_t  queries, keys, d, dv;                      /* in tiles */
    int64_t  i, j, n, m;                                /* the block: first tile of queries, of keys, tiles of both */
    char    *q[2], *k[2], *v, *dout;                    /* by tokens  */
    char    *q_columns[2], *k_columns[2], *v_columns, *dout_columns;
    char    *p, *p_transposed, *s[2], *s_transposed[2]; /* the block's P and dS: lines are keys; lines are queries */
    float   *scores[2], *slopes;                        /* tiles of sums; slopes: dp */
    float   *dq[2], *dk[2], *out;                       /* out: o, or dv */
    float   *top, *sum, *factor;                        /* of each query of the block; backwards l, w and c */
    int32_t *low, *high;                                /* keys visible to each query */
    char    *scratch;                                   /* NULL while its size is computed */
    size_t   taken;
} tni_bf16_head;

static void *tni_bf16_take(tni_bf16_head *w, int64_t bytes)
{
    char *p = w->scratch ? w->scratch + w->taken : NULL;
    w->taken += (size_t)tni_ceil_div(bytes, 64) * 64;
    return p;
}

static tni_bf16_head tni_bf16_head_open(const tni_attention *t, int64_t head, int worker, bool backward)
{
    const int64_t block = TNI_BF16_TOKENS * TNI_BF16_TOKENS * 2, line = TNI_BF16_TOKENS * (int64_t)sizeof(float);
    tni_bf16_head w = TNI_ZERO;
    w.t = t;
    w.products = t->cpu->gemm_products;
    w.pairs = w.products == tni_bf16_dots;
    w.products_pairs = w.pairs ? tni_bf16_dots_pairs : w.products;
    w.b = head / t->heads;
    w.h = head % t->heads;
    w.queries = tni_ceil_div(t->queries, 32);
    w.keys = tni_ceil_div(t->keys, 32);
    w.d = tni_ceil_div(t->d, 32);
    w.dv = tni_ceil_div(t->dv, 32);
    if (t->scratch) w.scratch = t->scratch + (size_t)worker * t->each;
    w.low = (int32_t *)tni_bf16_take(&w, line);
    w.high = (int32_t *)tni_bf16_take(&w, line);
    w.top = (float *)tni_bf16_take(&w, line);
    w.sum = (float *)tni_bf16_take(&w, line);
    w.factor = (float *)tni_bf16_take(&w, line);
    for (int64_t set = 0; set < t->sets; set++) {
        w.scores[set] = (float *)tni_bf16_take(&w, (backward ? 1 : TNI_BF16_SPAN) * 4096);
        w.q[set] = (char *)tni_bf16_take(&w, w.queries * w.d * 2048);
        w.k[set] = (char *)tni_bf16_take(&w, w.keys * w.d * 2048);
        if (!backward) continue;
        w.q_columns[set] = (char *)tni_bf16_take(&w, w.queries * w.d * 2048);
        w.k_columns[set] = (char *)tni_bf16_take(&w, w.keys * w.d * 2048);
        w.s[set] = (char *)tni_bf16_take(&w, block);
        w.s_transposed[set] = (char *)tni_bf16_take(&w, block);
        w.dq[set] = (float *)tni_bf16_take(&w, line * w.d * 32);
        w.dk[set] = (float *)tni_bf16_take(&w, w.keys * w.d * 4096);
    }
    if (backward) {
        w.v = (char *)tni_bf16_take(&w, w.keys * w.dv * 2048);
        w.dout = (char *)tni_bf16_take(&w, w.queries * w.dv * 2048);
        w.dout_columns = (char *)tni_bf16_take(&w, w.queries * w.dv * 2048);
        w.p = (char *)tni_bf16_take(&w, block);
        w.slopes = (float *)tni_bf16_take(&w, 4096);
        w.out = (float *)tni_bf16_take(&w, w.keys * w.dv * 4096);
    } else {
        w.v_columns = (char *)tni_bf16_take(&w, w.keys * w.dv * 2048);
        w.p_transposed = (char *)tni_bf16_take(&w, block / TNI_BF16_SPAN);
        w.out = (float *)tni_bf16_take(&w, w.dv * 4096);
    }
    return w;
}

/* The first number of a row of a head */
static uint16_t *tni_bf16_row(const tn_view *v, const tni_bf16_head *w, int64_t set, int64_t row)
{
    return (uint16_t *)v->data + w->b * v->strides[0] + row * v->strides[1] + (w->h + set * w->t->heads) * v->strides[2];
}

/* All strips of a head; by tokens: `left` factors of a product, or right ones */
static void tni_bf16_head_pack(const tni_bf16_head *w, char *to, const tn_view *v, int64_t set, bool by_tokens, bool left)
{
    const int64_t   lines = by_tokens ? v->shape[1] : v->shape[3], depth = by_tokens ? v->shape[3] : v->shape[1];
    const int64_t   line = by_tokens ? v->strides[1] : 1, step = by_tokens ? 1 : v->strides[1];
    const int64_t   bytes = tni_ceil_div(depth, 32) * 1024;
    const uint16_t *from = tni_bf16_row(v, w, set, 0);
    for (int64_t i = 0; i < tni_ceil_div(lines, 32) * 32; i += 16, to += bytes)
        if (i < lines) tni_bf16_pack_halves(to, from + i * line, line, step, tni_min(16, lines - i), depth, left);
        else memset(to, 0, (size_t)bytes);
}

/* Two strips of each factor: the tile of 32 x 32 sums */
static void tni_bf16_scores(const tni_bf16_head *w, int64_t depth, const char *a, int64_t i, const char *b, int64_t j,
                            float *sums)
{
    w->products(1, depth, a + i * depth * 2048, depth * 1024, b + j * depth * 2048, depth * 1024, sums);
}

/* to[32,columns] = factor to + A B, for one pair of strips of A with `blocks` of depth; factor: of each row; NULL: 1.
   B: by columns, from tile `at` of its depth `depth` */
TNI_ISA512 static void tni_bf16_add(tni_bf16_products_fn products, int64_t blocks, const char *a, int64_t a_next,
                                    const char *b, int64_t at, int64_t depth, int64_t columns, const float *factor, float *to)
{
    float sums[32 * 32];
    for (int64_t e = 0; e < columns; e++) {
        products(1, blocks, a, a_next, b + (2 * e * depth + at) * 1024, depth * 1024, sums);
        for (int64_t r = 0; r < 32; r++) {
            float       *y = to + (r * columns + e) * 32;
            const __m512 by = _mm512_set1_ps(factor ? factor[r] : 1);
            _mm512_storeu_ps(y, _mm512_fmadd_ps(by, _mm512_loadu_ps(y), _mm512_loadu_ps(sums + r * 32)));
            _mm512_storeu_ps(y + 16, _mm512_fmadd_ps(by, _mm512_loadu_ps(y + 16), _mm512_loadu_ps(sums + r * 32 + 16)));
        }
    }
}

/* The block's queries from tile i on: their visible keys; none for those after the last one. */
static void tni_bf16_queries(tni_bf16_head *w, int64_t i, int64_t most)
{
    w->i = i;
    w->n = tni_min(most, w->queries - i);
    for (int64_t q = 0; q < w->n * 32; q++) {
        const tni_seen seen = tni_attend_seen(w->t->call, tni_min(i * 32 + q, w->t->queries - 1));
        w->low[q] = (int32_t)seen.low;
        w->high[q] = (int32_t)(i * 32 + q < w->t->queries ? seen.high : seen.low);
    }
}

/* Whether a query of tile i of the block sees a key of tile j. Rows after the last query are padding, for which the last query
   counts. */
static bool tni_bf16_visible(const tni_bf16_head *w, int64_t i, int64_t j)
{
    const int64_t last = tni_min((w->i + i) * 32 + 31, w->t->queries - 1);
    return w->low[i * 32] < (j + 1) * 32 && tni_attend_seen(w->t->call, last).high > j * 32;
}

/* Of 16 queries, those that see key j */
TNI_ISA512 static __mmask16 tni_bf16_seen(__m512i low, __m512i high, int64_t j)
{
    const __m512i key = _mm512_set1_epi32((int)j);
    return _mm512_mask_cmpgt_epi32_mask(_mm512_cmple_epi32_mask(low, key), high, key);
}

/* Rounds x and y, of two keys: to a pair for each query, and, if there are strips of keys, to both rows of these. */
TNI_ISA512 static void tni_bf16_put(char *transposed, char *rows, __m512 x, __m512 y)
{
    const __m512i  first = _mm512_castps_si512(tni_bf16_round(x)), second = _mm512_castps_si512(tni_bf16_round(y));
    const __m512i  upper = _mm512_maskz_srli_epi32(0xffff, first, 16);
    if (transposed) _mm512_storeu_si512(transposed, _mm512_or_si512(upper, second));
    if (!rows) return;
    _mm256_storeu_si256((__m256i *)(void *)rows, _mm512_maskz_cvtepi32_epi16(0xffff, upper));
    _mm256_storeu_si256((__m256i *)(void *)(rows + 64),
                        _mm512_maskz_cvtepi32_epi16(0xffff, _mm512_maskz_srli_epi32(0xffff, second, 16)));
}

/* P of the tile of queries and the block's keys, from their scores; running maximum, running sum, and the factor of what was
   summed before, see attend_softmax. */
TNI_ISA512 static void tni_bf16_weights(const tni_bf16_head *w)
{
    const tni_attention *t = w->t;
    const __m512  scale = _mm512_set1_ps((float)t->call->f[0]);
    const int64_t first = w->j * 32, n = w->m * 32;
    for (int64_t a = 0; a < 32; a += 16) {
        float        *s = w->scores[0] + a, *other = w->scores[t->sets - 1] + a;
        char         *p = w->p_transposed + a / 16 * w->m * 1024;
        const __m512i low = _mm512_loadu_si512(w->low + a), high = _mm512_loadu_si512(w->high + a);
        __m512        old = _mm512_loadu_ps(w->top + a), top = old, sum = _mm512_setzero_ps(), more = sum;
        for (int64_t j = 0; t->softmax && j < n; j++) {
            const __m512 x = _mm512_mask_mul_ps(_mm512_set1_ps((float)-HUGE_VAL), tni_bf16_seen(low, high, first + j),
                                                _mm512_loadu_ps(s + j * 32), scale);
            _mm512_storeu_ps(s + j * 32, x);
            top = _mm512_maskz_max_ps(0xffff, top, x);
        }
        for (int64_t j = 0; j < n; j += 2) {
            __m512 x = _mm512_loadu_ps(s + j * 32), y = _mm512_loadu_ps(s + j * 32 + 32);
            if (t->softmax) {
                x = tni_f32_exp_avx512(_mm512_sub_ps(x, top));
                y = tni_f32_exp_avx512(_mm512_sub_ps(y, top));
            } else {
                const __m512 x2 = _mm512_mul_ps(_mm512_loadu_ps(other + j * 32), scale);
                const __m512 y2 = _mm512_mul_ps(_mm512_loadu_ps(other + j * 32 + 32), scale);
                x = _mm512_maskz_mul_ps(tni_bf16_seen(low, high, first + j), _mm512_mul_ps(x, scale), x2);
                y = _mm512_maskz_mul_ps(tni_bf16_seen(low, high, first + j + 1), _mm512_mul_ps(y, scale), y2);
            }
            sum = _mm512_add_ps(sum, x);
            more = _mm512_add_ps(more, y);
            tni_bf16_put(p + j * 32, NULL, x, y);
        }
        old = t->softmax ? tni_f32_exp_avx512(_mm512_sub_ps(old, top)) : _mm512_set1_ps(1);
        _mm512_storeu_ps(w->factor + a, old);
        _mm512_storeu_ps(w->top + a, top);
        _mm512_storeu_ps(w->sum + a, _mm512_fmadd_ps(_mm512_loadu_ps(w->sum + a), old, _mm512_add_ps(sum, more)));
        for (int64_t j = 0; !w->pairs && j < w->m; j++) tni_bf16_transpose(p + j * 1024);
    }
}

/* n numbers: y = factor x, or y += x */
TNI_ISA512 static void tni_bf16_store_row(uint16_t *y, const float *x, int64_t n, bool adds, float factor)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 some = (__mmask16)(n - i < 16 ? 0xffffu >> (16 - (n - i)) : 0xffffu);
        const __m512i   old = _mm512_maskz_cvtepu16_epi32(some, _mm256_maskz_loadu_epi16(some, y + i));
        const __m512    add = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, old, 16));
        const __m512    v = _mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(factor));
        _mm256_mask_storeu_epi16(y + i, some, tni_bf16_narrow(adds ? _mm512_add_ps(add, v) : v));
    }
}

/* The tile's rows of o = c_i out, and their saved numbers, see attend_finish */
static void tni_bf16_finish(const tni_bf16_head *w)
{
    const tni_attention *t = w->t;
    const tn_call       *c = t->call;
    float               *stat = (float *)c->out[1].data;
    for (int64_t q = 0; q < tni_min(32, t->queries - w->i * 32); q++) {
        const int64_t row = w->i * 32 + q, seen = tni_attend_seen(c, row).n;
        const double  sum = (double)w->sum[q] + (t->sums ? c->f[3] : 0);
        const bool    none = seen == 0 || (t->softmax && sum == 0);
        uint16_t     *o = tni_bf16_row(&c->out[0], w, 0, row);
        if (none) memset(o, 0, sizeof *o * (size_t)t->dv);
        else tni_bf16_store_row(o, w->out + q * w->dv * 32, t->dv, false, (float)(t->softmax ? tni_attend_row_scale(c, seen) / sum
                                                          : t->sums ? 1 / sum : tni_attend_row_scale(c, seen)));
        if (stat)
            stat[(w->b * t->heads + w->h) * t->queries + row] =
                (float)(!t->softmax ? sum : none ? -HUGE_VAL : (double)w->top[q] + log(sum));
    }
}

static void tni_bf16_attention_task(void *arg, int64_t head, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const tn_view       *in = t->call->in;
    tni_bf16_head        w = tni_bf16_head_open(t, head, worker, false);
    if (!w.pairs) tni_bf16_tiles_begin();
    for (int64_t set = 0; set < t->sets; set++) {
        tni_bf16_head_pack(&w, w.q[set], &in[0], set, true, false);
        tni_bf16_head_pack(&w, w.k[set], &in[1], set, true, true);
    }
    tni_bf16_head_pack(&w, w.v_columns, &in[2], 0, false, false);
    for (int64_t i = 0; i < w.queries; i++) {
        tni_bf16_queries(&w, i, 1);
        for (int64_t j = 0; j < 32; j++) w.top[j] = -3.4028234663852886e38f;
        memset(w.sum, 0, sizeof *w.sum * 32);
        memset(w.out, 0, (size_t)w.dv * 4096);
        for (w.j = w.low[0] / 32; w.j < w.keys && tni_bf16_visible(&w, 0, w.j); w.j += w.m) {
            for (w.m = 0; w.m < TNI_BF16_SPAN && w.j + w.m < w.keys && tni_bf16_visible(&w, 0, w.j + w.m); w.m++)
                for (int64_t set = 0; set < t->sets; set++)
                    tni_bf16_scores(&w, w.d, w.k[set], w.j + w.m, w.q[set], i, w.scores[set] + w.m * 1024);
            tni_bf16_weights(&w);
            tni_bf16_add(w.products_pairs, w.m, w.p_transposed, w.m * 1024, w.v_columns, w.j, w.keys, w.dv, w.factor, w.out);
        }
        tni_bf16_finish(&w);
    }
    if (!w.pairs) tni_bf16_tiles_end();
}

#ifndef TN_NO_TRAINING
TNI_ISA512 static double tni_bf16_inner(const uint16_t *x, const uint16_t *y, int64_t n)
{
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 some = (__mmask16)(n - i < 16 ? 0xffffu >> (16 - (n - i)) : 0xffffu);
        const __m512i   a = _mm512_maskz_cvtepu16_epi32(some, _mm256_maskz_loadu_epi16(some, x + i));
        const __m512i   b = _mm512_maskz_cvtepu16_epi32(some, _mm256_maskz_loadu_epi16(some, y + i));
        sum = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, a, 16)),
                              _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, b, 16)), sum);
    }
    return (double)tni_f32_lane_sum_avx512(sum);
}

/* l, w and c of the block's queries, see >>op-attention */
static void tni_bf16_upstream(const tni_bf16_head *w)
{
    const tni_attention *t = w->t;
    const tn_call       *c = t->call;
    const int64_t        first = w->i * 32, n = tni_min(w->n * 32, t->queries - first);
    const float         *stat = (const float *)c->in[4].data;
    if (stat) stat += (w->b * t->heads + w->h) * t->queries + first;
    memset(w->top, 0, sizeof *w->top * TNI_BF16_TOKENS);
    memset(w->sum, 0, sizeof *w->sum * TNI_BF16_TOKENS);
    memset(w->factor, 0, sizeof *w->factor * TNI_BF16_TOKENS);
    for (int64_t q = 0; q < n; q++) {
        const double scale = t->sums ? 1 / (double)stat[q] : tni_attend_row_scale(c, tni_attend_seen(c, first + q).n);
        w->factor[q] = (float)scale;
        if (t->softmax) w->top[q] = stat[q] == (float)-HUGE_VAL ? (float)HUGE_VAL : stat[q];
        if (t->softmax || t->sums)
            w->sum[q] = (float)(-tni_bf16_inner(tni_bf16_row(&c->in[5], w, 0, first + q),
                                                tni_bf16_row(&c->in[3], w, 0, first + q), t->dv) * (t->sums ? scale : 1));
    }
}

/* c P and f0 dS of tile i of the block's queries, tile j of its keys */
TNI_ISA512 static void tni_bf16_slopes(const tni_bf16_head *w, int64_t i, int64_t j)
{
    const tni_attention *t = w->t;
    const __m512 scale = _mm512_set1_ps((float)t->call->f[0]);
    for (int64_t a = 0; a < 32; a += 16) {
        const int64_t q = i * 32 + a;
        const __m512i low = _mm512_loadu_si512(w->low + q), high = _mm512_loadu_si512(w->high + q);
        const __m512  l = _mm512_loadu_ps(w->top + q), wi = _mm512_loadu_ps(w->sum + q), ci = _mm512_loadu_ps(w->factor + q);
        const int64_t transposed = (q / 16 * TNI_BF16_SPAN + j) * 1024;
        for (int64_t r = 0; r < 32; r += 2) {
            const int64_t row = ((2 * j + r / 16) * TNI_BF16_SPAN + i) * 1024 + r % 16 * 64 + a * 2;
            __m512        p[2], ds[2], ds2[2];
            for (int k = 0; k < 2; k++) {
                const int64_t   at = (r + k) * 32 + a;
                const __mmask16 seen = tni_bf16_seen(low, high, (w->j + j) * 32 + r + k);
                const __m512    x = _mm512_mul_ps(_mm512_loadu_ps(w->scores[0] + at), scale);
                const __m512    dp = _mm512_mul_ps(_mm512_fmadd_ps(ci, _mm512_loadu_ps(w->slopes + at), wi), scale);
                if (t->softmax) {
                    const __m512 e = tni_f32_exp_avx512(_mm512_sub_ps(x, l));
                    p[k] = _mm512_maskz_mul_ps(seen, e, ci);
                    ds[k] = ds2[k] = _mm512_maskz_mul_ps(seen, e, dp);
                } else {
                    const __m512 y = _mm512_mul_ps(_mm512_loadu_ps(w->scores[t->sets - 1] + at), scale);
                    p[k] = _mm512_maskz_mul_ps(seen, _mm512_mul_ps(x, y), ci);
                    ds[k] = _mm512_maskz_mul_ps(seen, t->squared ? _mm512_add_ps(y, y) : y, dp);
                    ds2[k] = _mm512_maskz_mul_ps(seen, x, dp);
                }
            }
            tni_bf16_put(NULL, w->p + row, p[0], p[1]);
            tni_bf16_put(w->s_transposed[0] + transposed + r * 32, w->s[0] + row, ds[0], ds[1]);
            if (t->sets > 1) tni_bf16_put(w->s_transposed[1] + transposed + r * 32, w->s[1] + row, ds2[0], ds2[1]);
        }
        for (int64_t set = 0; !w->pairs && set < t->sets; set++) tni_bf16_transpose(w->s_transposed[set] + transposed);
    }
}

/* The block's tiles; then, from those that are visible, its shares of the sums dq, dk and dv */
static void tni_bf16_block(const tni_bf16_head *w)
{
    const tn_view *out = w->t->call->out;
    const int64_t  next = TNI_BF16_SPAN * 1024;
    int64_t        from, to;
    for (int64_t j = 0; j < w->m; j++) {
        for (from = 0; from < w->n && !tni_bf16_visible(w, from, w->j + j); from++) {}
        for (to = from; to < w->n && tni_bf16_visible(w, to, w->j + j); to++) {
            for (int64_t set = 0; set < w->t->sets; set++)
                tni_bf16_scores(w, w->d, w->k[set], w->j + j, w->q[set], w->i + to, w->scores[set]);
            tni_bf16_scores(w, w->dv, w->v, w->j + j, w->dout, w->i + to, w->slopes);
            tni_bf16_slopes(w, to, j);
        }
        if (from == to) continue;
        if (out[2].data)
            tni_bf16_add(w->products, to - from, w->p + (2 * j * TNI_BF16_SPAN + from) * 1024, next, w->dout_columns,
                         w->i + from, w->queries, w->dv, NULL, w->out + (w->j + j) * w->dv * 1024);
        for (int64_t set = 0; out[1].data && set < w->t->sets; set++)
            tni_bf16_add(w->products, to - from, w->s[set] + (2 * j * TNI_BF16_SPAN + from) * 1024, next, w->q_columns[set],
                         w->i + from, w->queries, w->d, NULL, w->dk[set] + (w->j + j) * w->d * 1024);
    }
    for (int64_t i = 0; i < w->n && out[0].data; i++) {
        for (from = 0; from < w->m && !tni_bf16_visible(w, i, w->j + from); from++) {}
        for (to = from; to < w->m && tni_bf16_visible(w, i, w->j + to); to++) {}
        for (int64_t set = 0; from < to && set < w->t->sets; set++)
            tni_bf16_add(w->products_pairs, to - from, w->s_transposed[set] + (2 * i * TNI_BF16_SPAN + from) * 1024, next,
                         w->k_columns[set], w->j + from, w->keys, w->d, NULL, w->dq[set] + i * w->d * 1024);
    }
}

/* Rows [first,end) of a result (+)= sums */
static void tni_bf16_add_rows(const tni_bf16_head *w, const tn_view *out, int64_t set, int64_t first, int64_t end,
                              const float *sums)
{
    const int64_t width = tni_ceil_div(out->shape[3], 32) * 32;
    for (int64_t r = first; r < end && out->data; r++, sums += width)
        tni_bf16_store_row(tni_bf16_row(out, w, set, r), sums, out->shape[3], w->t->call->accumulate, 1);
}

static void tni_bf16_attention_backward_task(void *arg, int64_t head, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const tn_view       *in = t->call->in, *out = t->call->out;
    tni_bf16_head        w = tni_bf16_head_open(t, head, worker, true);
    if (!w.pairs) tni_bf16_tiles_begin();
    for (int64_t set = 0; set < t->sets; set++) {
        tni_bf16_head_pack(&w, w.q[set], &in[0], set, true, false);
        tni_bf16_head_pack(&w, w.k[set], &in[1], set, true, true);
        tni_bf16_head_pack(&w, w.q_columns[set], &in[0], set, false, false);
        tni_bf16_head_pack(&w, w.k_columns[set], &in[1], set, false, false);
        memset(w.dk[set], 0, (size_t)(w.keys * w.d) * 4096);
    }
    tni_bf16_head_pack(&w, w.v, &in[2], 0, true, true);
    tni_bf16_head_pack(&w, w.dout, &in[5], 0, true, false);
    tni_bf16_head_pack(&w, w.dout_columns, &in[5], 0, false, false);
    memset(w.out, 0, (size_t)(w.keys * w.dv) * 4096);
    for (int64_t i = 0; i < w.queries; i += TNI_BF16_SPAN) {
        const int64_t end = tni_min((i + TNI_BF16_SPAN) * 32, t->queries);
        tni_bf16_queries(&w, i, TNI_BF16_SPAN);
        tni_bf16_upstream(&w);
        for (int64_t set = 0; set < t->sets; set++) memset(w.dq[set], 0, (size_t)(w.n * w.d) * 4096);
        for (w.j = w.low[0] / 32; w.j < w.keys && w.j * 32 < tni_attend_seen(t->call, end - 1).high; w.j += w.m) {
            w.m = tni_min(TNI_BF16_SPAN, w.keys - w.j);
            tni_bf16_block(&w);
        }
        for (int64_t set = 0; set < t->sets; set++) tni_bf16_add_rows(&w, &out[0], set, i * 32, end, w.dq[set]);
    }
    for (int64_t set = 0; set < t->sets; set++) tni_bf16_add_rows(&w, &out[1], set, 0, t->keys, w.dk[set]);
    tni_bf16_add_rows(&w, &out[2], 0, 0, t->keys, w.out);
    if (!w.pairs) tni_bf16_tiles_end();
}
#endif

/* TN_ERR_DTYPE, before anything is done: not all operands are BF16, or the shape leaves too much of the tiles unused, or
   heads are few, see heads_run. This depends on the call only. */
TNI_FN tn_status tni_bf16_attention_run(tni_cpu *cpu, const tn_call *c)
{
    const bool    backward = c->kernel != TN_KERNEL_ATTENTION;
    tni_attention t = tni_attention_of(cpu, c, TNI_BF16_TOKENS);
    if (cpu->gemm_parts != 1 || t.d < 16 || t.dv < 16 || t.queries < 16 || t.keys < 16 || t.keys > INT32_MAX / 2 ||
        t.all_heads < TNI_ATTEND_FEW) return TN_ERR_DTYPE;
    for (int64_t k = 0; k < c->n_in + c->n_out; k++) {
        const tn_view *v = k < c->n_in ? &c->in[k] : &c->out[k - c->n_in];
        if (v->data && v->rank == 4 && v->dtype != TN_BF16) return TN_ERR_DTYPE;
    }
    if (!tni_attention_scratch(&t, (int64_t)tni_bf16_head_open(&t, 0, 0, backward).taken, 0, 1)) return TN_ERR_MEMORY;
#ifndef TN_NO_TRAINING
    if (backward) tni_parallel_for(&cpu->pool, t.all_heads, tni_bf16_attention_backward_task, &t);
#endif
    if (!backward) tni_parallel_for(&cpu->pool, t.all_heads, tni_bf16_attention_task, &t);
    return TN_OK;
}
#endif
