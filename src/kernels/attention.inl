#if TNI_SEQUENCES
/* ---- attention, see >>op-attention -------------------------------------- >>pass-attention
   A query block, up to TNI_SIDE queries, is processed with TNI_ATTEND_KEYS keys at a time, and only that tile of scores is
   stored. It is s[key][query], with the queries contiguous: so the running maximum, the running sum and the scale of a row
   are vectors, keys are the left factor and read in place, and in the following products the tile is the left
   factor, in either direction, as if it had been packed. Of the tiles on the diagonal only visible parts are multiplied.
   In the forward pass a task is a query block. In the backward pass it is a head; if heads are few, it is a part of the
   keys (every so many tiles), and the parts of dq are added in their order. Dao et al. 2022 */
#if TNI_MR == 14
#define TNI_SIDE 112                    /* a multiple of the rows and the columns of a tile */
#else
#define TNI_SIDE 96
#endif
#define TNI_WIDE  ((TNI_MR + TNI_W - 1) / TNI_W * TNI_W)
#define TNI_WHOLE(n) (((n) + TNI_W - 1) / TNI_W * TNI_W)

/* c[m,n] = a b, or += a b; n is a multiple of TNI_W. Panel p of b, two vectors wide, begins at b + p panel. */
TNI_FAST void TNI_T(attend_product)(bool add, int64_t m, int64_t n, int64_t depth, const TNI_REAL *a, int64_t a_row,
                                    int64_t a_col, const TNI_REAL *b, int64_t b_row, TNI_REAL *c, int64_t c_row)
{
    const int64_t high = a_row == 1 ? TNI_MR : tni_ceil_div(m, tni_max(tni_ceil_div(m, TNI_MR), 1));
    TNI_T(tile)   t;
    t.depth = depth;
    t.a_row = a_row;
    t.a_col = a_col;
    t.b_row = b_row;
    t.c_row = c_row;
    t.from_row = add ? c_row : 0;
    t.last = TNI_W;
    for (int64_t j = 0; j < n; j += TNI_NR)
        for (int64_t i = 0; i < m; i += high) {
            t.a = a + i * a_row;
            t.b = b + j;
            t.c = c + i * c_row + j;
            t.from = add ? t.c : TNI_T(zeros);
            TNI_T(gemm_rows)((int)tni_min(high, m - i), n - j > TNI_W, &t);
        }
}

/* y[n] = factor x[n], then zeros up to `width` */
TNI_NOINLINE TNI_FAST void TNI_T(attend_copy)(TNI_REAL *y, const TNI_REAL *x, int64_t n, int64_t width, TNI_REAL factor)
{
    const TNI_V by = TNI_SET(factor);
    int64_t     i;
    for (i = 0; i < n; i += TNI_W)
        TNI_STORE(y + i, TNI_LOAD(x + i, TNI_T(lanes)(n - i)) * by, TNI_T(lanes)(width - i));
    for (; i < width; i += TNI_W) TNI_STORE(y + i, TNI_SET(0), TNI_T(lanes)(width - i));
}

#if TNI_BITS == 32
TNI_INLINE TNI_V TNI_T(attend_exp)(TNI_V x) { return TNI_T(exp_below)(x); }
TNI_INLINE TNI_V TNI_T(attend_max)(TNI_V a, TNI_V b) { return TNI_MAX(a, b); }
#else
TNI_INLINE TNI_V TNI_T(attend_exp)(TNI_V x)
{
    double lane[TNI_W];
    TNI_STORE(lane, x, TNI_W);
    for (int i = 0; i < TNI_W; i++) lane[i] = exp(lane[i]);
    return TNI_LOAD(lane, TNI_W);
}

TNI_INLINE TNI_V TNI_T(attend_max)(TNI_V a, TNI_V b)
{
    double x[TNI_W], y[TNI_W];
    TNI_STORE(x, a, TNI_W);
    TNI_STORE(y, b, TNI_W);
    for (int i = 0; i < TNI_W; i++) x[i] = x[i] > y[i] ? x[i] : y[i];
    return TNI_LOAD(x, TNI_W);
}
#endif

/* Rows of an operand: their strides, and, if these are unfavourable, memory for a copy of TNI_ATTEND_KEYS rows. */
typedef struct TNI_T(lines) { TNI_REAL *copy, *at; int64_t row, width; } TNI_T(lines);

/* The state of a query block. */
typedef struct TNI_T(attend) {
    const tni_attention *t;
    int64_t     b, h, i0, n, lanes;                     /* queries [i0,i0+n); n rounded up to vectors */
    int64_t     low[TNI_SIDE], high[TNI_SIDE];          /* keys visible to each query */
    int64_t     j0, j1;                                 /* current keys */
    int64_t     first, width, padded;                   /* columns of v; with a one after them, rounded up to vectors */
    int64_t     padded_d;
    bool        one;
    TNI_REAL   *q[2], *q_rows[2];                       /* [d,TNI_SIDE], scaled; [n,padded_d] */
    TNI_REAL   *u, *u_rows;                             /* the same of u, see >>op-attention */
    TNI_REAL   *s[2], *p;                               /* [TNI_ATTEND_KEYS,TNI_SIDE] */
    TNI_REAL   *top, *sum, *factor;                     /* [TNI_SIDE]; backwards w and l */
    TNI_REAL   *out;                                    /* [TNI_SIDE,padded]; backwards dq, sets of [TNI_SIDE,padded_d] */
    TNI_REAL   *tile;                                   /* [TNI_MR, the wider of both] */
    TNI_T(lines) k[2], v;
    TNI_REAL   *scratch;                                /* of the worker; NULL while its size is computed */
    int64_t     taken;                                  /* numbers of it in use */
} TNI_T(attend);

TNI_INLINE TNI_REAL *TNI_T(attend_take)(TNI_T(attend) *w, int64_t numbers)
{
    TNI_REAL *p = w->scratch ? w->scratch + w->taken : NULL;
    w->taken += (numbers + 15) / 16 * 16;
    return p;
}

/* Avoids strides of multiples of 1 KiB, whose rows would share cache sets. */
TNI_INLINE int64_t TNI_T(attend_apart)(int64_t width)
{
    return width * (int64_t)sizeof(TNI_REAL) % 1024 == 0 ? width + 16 : width;
}

TNI_FAST void TNI_T(attend_open)(TNI_T(attend) *w, const tni_attention *t, int64_t head, int worker, int64_t first,
                                 int64_t end, bool one, bool backward)
{
    int64_t set;
    memset(w, 0, sizeof *w);
    w->t = t;
    if (t->scratch) w->scratch = (TNI_REAL *)(void *)(t->scratch + (size_t)worker * t->each);
    w->b = head / t->heads;
    w->h = head % t->heads;
    w->first = first;
    w->width = end - first + one;
    w->one = one;
    w->padded = TNI_WHOLE(w->width);
    w->padded_d = TNI_WHOLE(t->d);
    for (set = 0; set < t->sets; set++) {
        w->q[set] = TNI_T(attend_take)(w, t->d * TNI_SIDE);
        w->s[set] = TNI_T(attend_take)(w, TNI_ATTEND_KEYS * TNI_SIDE);
        w->k[set].width = TNI_T(attend_apart)(w->padded_d);
        w->k[set].copy = TNI_T(attend_take)(w, TNI_ATTEND_KEYS * w->k[set].width);
        if (backward) w->q_rows[set] = TNI_T(attend_take)(w, TNI_SIDE * w->padded_d);
    }
    w->v.width = TNI_T(attend_apart)(w->padded);
    w->v.copy = TNI_T(attend_take)(w, TNI_ATTEND_KEYS * w->v.width);
    w->top = TNI_T(attend_take)(w, TNI_SIDE);
    w->sum = TNI_T(attend_take)(w, TNI_SIDE);
    w->factor = TNI_T(attend_take)(w, TNI_SIDE);
    w->out = TNI_T(attend_take)(w, TNI_SIDE * (backward ? t->sets * w->padded_d : w->padded));
    if (!backward) return;
    w->u = TNI_T(attend_take)(w, w->padded * TNI_SIDE);
    w->u_rows = TNI_T(attend_take)(w, TNI_SIDE * w->padded);
    w->p = TNI_T(attend_take)(w, TNI_ATTEND_KEYS * TNI_SIDE);
    w->tile = TNI_T(attend_take)(w, TNI_MR * tni_max(w->padded, w->padded_d));
}

/* Rows x[n,d] -> [d,TNI_SIDE], times `scale`, with zeros after the last one up to a whole vector */
TNI_FAST void TNI_T(attend_transpose)(TNI_REAL *to, const TNI_REAL *x, int64_t row, int64_t n, int64_t d, TNI_REAL scale)
{
    const TNI_V   by = TNI_SET(scale);
    const int64_t lanes = TNI_WHOLE(n);
    int64_t       i = 0, k, lane;
#if TNI_TURN
    const int64_t some = 128 / TNI_BITS;                        /* a cache line is filled before the next one */
    for (; i + 4 * some <= n; i += 4 * some)
        for (k = 0; k < d; k += some)
            for (lane = i; lane < i + 4 * some; lane += some)
                if (k + some <= d) TNI_TRANSPOSE(to + k * TNI_SIDE + lane, TNI_SIDE, x + lane * row + k, row);
                else {
                    for (int64_t q = k; q < d; q++)
                        for (int64_t r = lane; r < lane + some; r++) to[q * TNI_SIDE + r] = x[r * row + q];
                }
#endif
    for (k = 0; k < d; k++, to += TNI_SIDE) {
        for (lane = i; lane < n; lane++) to[lane] = x[lane * row + k];
        for (; lane < lanes; lane++) to[lane] = 0;
        for (lane = 0; scale != 1 && lane < lanes; lane += TNI_W)
            TNI_STORE(to + lane, TNI_LOAD(to + lane, TNI_W) * by, TNI_W);
    }
}

/* Queries [i0,i0+n): their visible keys, and their rows, scaled and transposed. */
TNI_FAST void TNI_T(attend_queries)(TNI_T(attend) *w, int64_t i0)
{
    const tni_attention *t = w->t;
    const tn_call       *c = t->call;
    const int64_t        before = t->local ? tni_attend_before(c, i0) : 0;
    int64_t              i, set;
    w->i0 = i0;
    w->n = tni_min(TNI_SIDE, t->queries - i0);
    w->lanes = TNI_WHOLE(w->n);
    for (i = 0; i < w->lanes; i++) {
        const tni_seen seen = tni_attend_seen(c, i0 + tni_min(i, w->n - 1));
        w->low[i] = tni_max(seen.low, before);
        w->high[i] = tni_max(seen.high, w->low[i]);
    }
    for (set = 0; set < t->sets; set++) {
        const TNI_REAL *q = TNI_ROW(&c->in[0], w->b, i0, w->h + set * t->heads);
        TNI_T(attend_transpose)(w->q[set], q, c->in[0].strides[1], w->n, t->d, (TNI_REAL)c->f[0]);
        for (i = 0; w->q_rows[set] && i < w->n; i++)
            TNI_T(attend_copy)(w->q_rows[set] + i * w->padded_d, q + i * c->in[0].strides[1], t->d, w->padded_d,
                               (TNI_REAL)c->f[0]);
    }
}

/* Rows [j0,j1) of x, `n` numbers each; `whole`: readable up to whole vectors. one: with a one after each. */
TNI_FAST void TNI_T(attend_lines)(TNI_T(lines) *l, TNI_REAL *x, int64_t stride, int64_t rows, int64_t n, bool whole,
                                  bool one)
{
    int64_t i;
    l->at = x;
    l->row = stride;
    if (!one && (!whole || n % TNI_W == 0) && stride * (int64_t)sizeof *x % 4096 != 0) return;
    l->at = l->copy;
    l->row = l->width;
    for (i = 0; i < rows; i++) {
        TNI_T(attend_copy)(l->copy + i * l->width, x + i * stride, n, TNI_WHOLE(n + one), 1);
        if (one) l->copy[i * l->width + n] = 1;
    }
}

/* Makes [j0,j1) the current keys; `whole` as above. */
TNI_FAST void TNI_T(attend_keys)(TNI_T(attend) *w, int64_t j0, int64_t j1, bool whole_k, bool whole_v)
{
    const tni_attention *t = w->t;
    const tn_view       *k = &t->call->in[1], *v = &t->call->in[2];
    w->j0 = j0;
    w->j1 = j1;
    for (int64_t set = 0; set < t->sets; set++)
        TNI_T(attend_lines)(&w->k[set], TNI_ROW(k, w->b, j0, w->h + set * t->heads), k->strides[1], j1 - j0, t->d, whole_k,
                            false);
    TNI_T(attend_lines)(&w->v, TNI_ROW(v, w->b, j0, w->h) + w->first, v->strides[1], j1 - j0, w->width - w->one, whole_v,
                        w->one);
}

/* s[key][query] = x[key] . y[query] for panels of queries with visible keys; y [depth,TNI_SIDE] */
TNI_FAST void TNI_T(attend_scores)(const TNI_T(attend) *w, const TNI_T(lines) *x, int64_t depth, const TNI_REAL *y,
                                   TNI_REAL *s)
{
    for (int64_t a = 0; a < w->lanes; a += TNI_NR) {
        const int64_t end = tni_min(a + TNI_NR, w->lanes);
        const int64_t from = tni_max(w->low[a], w->j0), to = tni_min(w->high[end - 1], w->j1);
        if (from < to)
            TNI_T(attend_product)(false, to - from, end - a, depth, x->at + (from - w->j0) * x->row, x->row, 1,
                                  y + a, TNI_SIDE, s + (from - w->j0) * TNI_SIDE + a, TNI_SIDE);
    }
}

/* For the vector at query a: the rows of the tile visible to some query, [from,to), and to all, [all,end). */
typedef struct TNI_T(span) { int64_t from, to, all, end; } TNI_T(span);

TNI_INLINE TNI_T(span) TNI_T(attend_span)(const TNI_T(attend) *w, int64_t a)
{
    const int64_t  last = a + TNI_W - 1;
    TNI_T(span)    r;
    r.from = tni_max(w->low[a], w->j0) - w->j0;
    r.to = tni_max(tni_min(w->high[last], w->j1) - w->j0, r.from);
    r.all = tni_min(tni_max(w->low[last] - w->j0, r.from), r.to);
    r.end = tni_max(tni_min(w->high[a] - w->j0, r.to), r.all);
    return r;
}

/* Scores of masked keys = value, in the current rows */
TNI_FAST void TNI_T(attend_mask)(const TNI_T(attend) *w, const TNI_T(span) *r, int64_t a, TNI_REAL *s, TNI_REAL value)
{
    for (int64_t j = r->from; j < r->to; j++) {
        if (j == r->all && r->end > j) j = r->end;
        if (j == r->to) break;
        for (int64_t i = a; i < a + TNI_W; i++)
            if (j + w->j0 < w->low[i] || j + w->j0 >= w->high[i]) s[j * TNI_SIDE + i] = value;
    }
}

/* The same with zeros, before a product: also in the rows that were not computed. */
TNI_FAST void TNI_T(attend_clear)(const TNI_T(attend) *w, const TNI_T(span) *r, int64_t a, TNI_REAL *s)
{
    const TNI_V zero = TNI_SET(0);
    TNI_T(attend_mask)(w, r, a, s, 0);
    for (int64_t j = 0; j < r->from; j++) TNI_STORE(s + j * TNI_SIDE + a, zero, TNI_W);
    for (int64_t j = r->to; j < w->j1 - w->j0; j++) TNI_STORE(s + j * TNI_SIDE + a, zero, TNI_W);
}

#define TNI_LEAST ((TNI_REAL)(TNI_BITS == 32 ? -3.4028234663852886e38 : -1.7976931348623157e308))

/* e^(s - top), the running maximum and running sum of each query, and the factor of the sums so far. The maximum adds 1 to
   the sum, which is 0 only if all scores are -inf, and stays NaN although the maximum may drop a NaN. */
TNI_FAST void TNI_T(attend_softmax)(TNI_T(attend) *w)
{
    for (int64_t a = 0; a < w->lanes; a += TNI_W) {
        TNI_T(span) r = TNI_T(attend_span)(w, a);
        TNI_REAL   *s = w->s[0] + a;
        TNI_V       old = TNI_LOAD(w->top + a, TNI_W), top = old, other = old, sum = TNI_SET(0), more = sum;
        r.from -= r.from % 2;                               /* two rows at a time: the added row is masked */
        r.to += r.to % 2;
        TNI_T(attend_mask)(w, &r, a, w->s[0], (TNI_REAL)-HUGE_VAL);
        for (int64_t j = r.from; j < r.to; j += 2) {
            top = TNI_T(attend_max)(top, TNI_LOAD(s + j * TNI_SIDE, TNI_W));
            other = TNI_T(attend_max)(other, TNI_LOAD(s + (j + 1) * TNI_SIDE, TNI_W));
        }
        top = TNI_T(attend_max)(top, other);
        for (int64_t j = r.from; j < r.to; j += 2) {
            TNI_V e0 = TNI_T(attend_exp)(TNI_LOAD(s + j * TNI_SIDE, TNI_W) - top);
            TNI_V e1 = TNI_T(attend_exp)(TNI_LOAD(s + (j + 1) * TNI_SIDE, TNI_W) - top);
            TNI_STORE(s + j * TNI_SIDE, e0, TNI_W);
            TNI_STORE(s + (j + 1) * TNI_SIDE, e1, TNI_W);
            sum = sum + e0;
            more = more + e1;
        }
        TNI_T(attend_clear)(w, &r, a, w->s[0]);
        old = TNI_T(attend_exp)(old - top);
        TNI_STORE(w->factor + a, old, TNI_W);
        TNI_STORE(w->top + a, top, TNI_W);
        TNI_STORE(w->sum + a, TNI_FMA(TNI_LOAD(w->sum + a, TNI_W), old, sum + more), TNI_W);
    }
}

/* The product of both scores, and the running sum */
TNI_FAST void TNI_T(attend_square)(TNI_T(attend) *w)
{
    const TNI_REAL *other = w->s[w->t->sets - 1];
    for (int64_t a = 0; a < w->lanes; a += TNI_W) {
        const TNI_T(span) r = TNI_T(attend_span)(w, a);
        TNI_REAL         *s = w->s[0] + a;
        TNI_V             sum = TNI_LOAD(w->sum + a, TNI_W);
        for (int64_t j = r.from; j < r.to; j++)
            TNI_STORE(s + j * TNI_SIDE, TNI_LOAD(s + j * TNI_SIDE, TNI_W) * TNI_LOAD(other + a + j * TNI_SIDE, TNI_W),
                      TNI_W);
        TNI_T(attend_clear)(w, &r, a, w->s[0]);
        for (int64_t j = r.from; w->t->sums && j < r.to; j++) sum = sum + TNI_LOAD(s + j * TNI_SIDE, TNI_W);
        TNI_STORE(w->sum + a, sum, TNI_W);
    }
}

/* to[query] += sum over the current keys of p[key][query] x[key], for each tile of queries with its visible keys */
TNI_FAST void TNI_T(attend_to_queries)(const TNI_T(attend) *w, const TNI_REAL *p, const TNI_T(lines) *x, int64_t width,
                                       TNI_REAL *to)
{
    for (int64_t i = 0; i < w->n; i += TNI_MR) {
        const int64_t rows = tni_min(TNI_MR, w->n - i);
        const int64_t from = tni_max(w->low[i], w->j0) - w->j0, end = tni_min(w->high[i + rows - 1], w->j1) - w->j0;
        if (from < end)
            TNI_T(attend_product)(true, rows, width, end - from, p + from * TNI_SIDE + i, 1, TNI_SIDE, x->at + from * x->row,
                                  x->row, to + i * width, width);
    }
}

/* Rows j of y += sum over queries of p[key][query] x[query], x [n,padded] */
TNI_FAST void TNI_T(attend_to_keys)(const TNI_T(attend) *w, const TNI_REAL *p, const TNI_REAL *x, int64_t padded,
                                    TNI_REAL *y, int64_t stride, int64_t width)
{
    const bool direct = width == padded;
    int64_t    i = 0, end = 0;
    for (int64_t j = w->j0; j < w->j1; j += TNI_MR, y += TNI_MR * stride) {
        const int64_t rows = tni_min(TNI_MR, w->j1 - j);
        while (i < w->n && w->high[i] <= j) i++;
        while (end < w->n && w->low[end] < j + rows) end++;
        if (i >= end) continue;
        TNI_T(attend_product)(direct, rows, padded, end - i, p + (j - w->j0) * TNI_SIDE + i, TNI_SIDE, 1, x + i * padded,
                              padded, direct ? y : w->tile, direct ? stride : padded);
        for (int64_t r = 0; !direct && r < rows; r++) TNI_T(row_add)(y + r * stride, w->tile + r * padded, width, 1);
    }
}

/* out[query] = sum_j P_ij v_j without the query's own factor. */
TNI_FAST void TNI_T(attend_block)(TNI_T(attend) *w)
{
    const tni_attention *t = w->t;
    const int64_t        end = w->high[w->n - 1];
    for (int64_t i = 0; i < TNI_SIDE; i++) w->top[i] = TNI_LEAST;
    memset(w->sum, 0, sizeof *w->sum * TNI_SIDE);
    memset(w->out, 0, sizeof *w->out * (size_t)(w->n * w->padded));
    for (int64_t j = w->low[0]; j < end; j += TNI_ATTEND_KEYS) {
        TNI_T(attend_keys)(w, j, tni_min(j + TNI_ATTEND_KEYS, end), false, true);
        for (int64_t set = 0; set < t->sets; set++) TNI_T(attend_scores)(w, &w->k[set], t->d, w->q[set], w->s[set]);
        if (t->softmax) TNI_T(attend_softmax)(w);
        else TNI_T(attend_square)(w);
        for (int64_t i = 0; t->softmax && j > w->low[0] && i < w->n; i++)
            if (w->factor[i] != 1)
                TNI_T(attend_copy)(w->out + i * w->padded, w->out + i * w->padded, w->padded, w->padded, w->factor[i]);
        TNI_T(attend_to_queries)(w, w->s[0], &w->v, w->padded, w->out);
    }
}

/* The task's columns of o = c_i out, and the row's saved number. */
TNI_FAST void TNI_T(attend_finish)(const TNI_T(attend) *w)
{
    const tni_attention *t = w->t;
    const tn_call       *c = t->call;
    TNI_REAL            *stat = (TNI_REAL *)c->out[1].data;
    for (int64_t i = 0; i < w->n; i++) {
        const TNI_REAL *out = w->out + i * w->padded;
        const int64_t   seen = tni_attend_seen(c, w->i0 + i).n, width = w->width - w->one;
        TNI_REAL       *o = TNI_ROW(&c->out[0], w->b, w->i0 + i, w->h) + w->first;
        double          sum = w->one ? (double)out[width] : (double)w->sum[i];
        const bool      none = seen == 0 || (t->softmax && sum == 0);
        if (t->sums) sum += c->f[3];
        if (none) memset(o, 0, sizeof *o * (size_t)width);
        else TNI_T(attend_copy)(o, out, width, width, (TNI_REAL)(t->softmax ? tni_attend_row_scale(c, seen) / sum
                                                                 : t->sums ? 1 / sum : tni_attend_row_scale(c, seen)));
        if (stat && w->first == 0)
            stat[(w->b * t->heads + w->h) * t->queries + w->i0 + i] =
                (TNI_REAL)(!t->softmax ? sum : none ? -HUGE_VAL : (double)w->top[i] + log(sum));
    }
}

/* Task: a query block of one head. If heads are few, long blocks come first, else those whose keys are in the cache. */
TNI_FAST void TNI_T(attention_task)(void *arg, int64_t task, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const int64_t        block = t->all_heads < TNI_ATTEND_FEW ? t->blocks - 1 - task % t->blocks : task % t->blocks;
    TNI_T(attend)        w;
    TNI_T(attend_open)(&w, t, task / t->blocks, worker, 0, t->dv, false, false);
    TNI_T(attend_queries)(&w, block * TNI_SIDE);
    TNI_T(attend_block)(&w);
    TNI_T(attend_finish)(&w);
}

/* One query, as in decoding: without a tile of queries, with the keys and values in place. What limits it is how fast memory
   is read, and it is fastest in order: so a task takes several heads of a query, and reads k and v row by row, in two halves
   at once, which needs fewer instructions, so that more of what is to come is already requested. */
typedef struct TNI_T(attend_row) {
    const tni_attention *t;
    int64_t              b, i, h0, h1;                  /* query i, heads [h0,h1) */
    int64_t              j, n;                          /* current keys [j,j+n) */
    TNI_REAL            *s;                             /* [sets,heads,TNI_ATTEND_LONG] */
    TNI_REAL            *top, *sum, *factor;            /* [heads] */
} TNI_T(attend_row);

TNI_INLINE TNI_REAL *TNI_T(attend_row_at)(const TNI_T(attend_row) *w, int64_t set, int64_t h)
{
    return w->s + (set * w->t->heads + h) * TNI_ATTEND_LONG;
}

/* s0 and s1 = x.y and x.z, of which the lanes are still to be added */
TNI_INLINE void TNI_T(attend_row_dots)(const TNI_REAL *x, const TNI_REAL *y, const TNI_REAL *z, int64_t d, TNI_V *s0, TNI_V *s1)
{
    int64_t e;
    *s0 = *s1 = TNI_SET(0);
#define TNI_STEP(k) { \
        const TNI_V u = TNI_LOAD(x + e, k); \
        *s0 = TNI_FMA(u, TNI_LOAD(y + e, k), *s0); \
        *s1 = TNI_FMA(u, TNI_LOAD(z + e, k), *s1); }
    for (e = 0; e + TNI_W <= d; e += TNI_W) TNI_STEP(TNI_W)
    if (e < d) TNI_STEP((int)(d - e))
#undef TNI_STEP
}

/* s = f0 q.k over the current keys; then, up to whole vectors, scores of no keys. Two halves of the keys and two heads at
   once. Of an odd number of keys or heads, the last one is computed twice. */
TNI_FAST void TNI_T(attend_row_scores)(const TNI_T(attend_row) *w)
{
    const tni_attention *t = w->t;
    const tn_call       *c = t->call;
    const int64_t        q_head = c->in[0].strides[2], k_head = c->in[1].strides[2], k_row = c->in[1].strides[1];
    const int64_t        half = (w->n + 1) / 2, d = t->d, h1 = w->h1;
    const TNI_REAL       rest = (TNI_REAL)(t->softmax ? -HUGE_VAL : 0), scale = (TNI_REAL)c->f[0];
    for (int64_t j = 0; j < half; j++) {
        const int64_t more = tni_min(half, w->n - 1 - j);
        for (int64_t set = 0; set < t->sets; set++) {
            const TNI_REAL *q = TNI_ROW(&c->in[0], w->b, w->i, set * t->heads);
            const TNI_REAL *k = TNI_ROW(&c->in[1], w->b, w->j + j, set * t->heads), *l = k + more * k_row;
            for (int64_t h = w->h0; h < h1; h += 2) {
                const int64_t other = tni_min(h + 1, h1 - 1);
                TNI_REAL     *s = TNI_T(attend_row_at)(w, set, h) + j, *r = TNI_T(attend_row_at)(w, set, other) + j, sums[4];
                TNI_V         lanes[4];
                TNI_T(attend_row_dots)(q + h * q_head, k + h * k_head, l + h * k_head, d, lanes, lanes + 1);
                TNI_T(attend_row_dots)(q + other * q_head, k + other * k_head, l + other * k_head, d, lanes + 2, lanes + 3);
                TNI_T(lane_sums)(lanes[0], lanes[1], lanes[2], lanes[3], sums);
                s[0] = scale * sums[0];
                s[more] = scale * sums[1];
                r[0] = scale * sums[2];
                r[more] = scale * sums[3];
            }
        }
    }
    for (int64_t j = w->n; j % TNI_W != 0; j++)
        for (int64_t set = 0; set < t->sets; set++)
            for (int64_t h = w->h0; h < h1; h++) TNI_T(attend_row_at)(w, set, h)[j] = rest;
}

/* s = e^(s - top) of head h; its top and sum go on. The factor is that of what was summed before. Of NaN and -inf see
   attend_softmax. */
TNI_FAST void TNI_T(attend_row_softmax)(const TNI_T(attend_row) *w, int64_t h)
{
    TNI_REAL *s = TNI_T(attend_row_at)(w, 0, h), *top = w->top + h, lane[TNI_W];
    TNI_V     old = TNI_SET(*top), most = old, total = TNI_SET(0);
    for (int64_t j = 0; j < w->n; j += TNI_W) most = TNI_T(attend_max)(most, TNI_LOAD(s + j, TNI_W));
    TNI_STORE(lane, most, TNI_W);
    for (int64_t j = 0; j < TNI_W; j++) *top = lane[j] > *top ? lane[j] : *top;
    most = TNI_SET(*top);
    for (int64_t j = 0; j < w->n; j += TNI_W) {
        const TNI_V e = TNI_T(attend_exp)(TNI_LOAD(s + j, TNI_W) - most);
        TNI_STORE(s + j, e, TNI_W);
        total = total + e;
    }
    TNI_STORE(lane, TNI_T(attend_exp)(old - most), TNI_W);
    w->factor[h] = lane[0];
    w->sum[h] = w->sum[h] * lane[0] + TNI_T(lane_sum)(total);
}

/* s = s1 s2 of head h, and their sum */
TNI_FAST void TNI_T(attend_row_square)(const TNI_T(attend_row) *w, int64_t h)
{
    TNI_REAL       *s = TNI_T(attend_row_at)(w, 0, h);
    const TNI_REAL *other = TNI_T(attend_row_at)(w, w->t->sets - 1, h);
    TNI_V           total = TNI_SET(0);
    for (int64_t j = 0; j < w->n; j += TNI_W) {
        const TNI_V p = TNI_LOAD(s + j, TNI_W) * TNI_LOAD(other + j, TNI_W);
        TNI_STORE(s + j, p, TNI_W);
        total = total + p;
    }
    w->factor[h] = 1;
    w->sum[h] += TNI_T(lane_sum)(total);
}

/* o += f x, and + g y if there is a pair, of n numbers */
TNI_INLINE void TNI_T(attend_row_add)(const bool pair, TNI_REAL *o, const TNI_REAL *x, TNI_REAL f, const TNI_REAL *y,
                                      TNI_REAL g, int64_t n)
{
    const TNI_V fs = TNI_SET(f), gs = TNI_SET(g);
    int64_t     e;
#define TNI_STEP(e, k) { \
        TNI_V v = TNI_FMA(fs, TNI_LOAD(x + (e), k), TNI_LOAD(o + (e), k)); \
        if (pair) v = TNI_FMA(gs, TNI_LOAD(y + (e), k), v); \
        TNI_STORE(o + (e), v, k); }
    for (e = 0; e + TNI_W <= n; e += TNI_W) TNI_STEP(e, TNI_W)
    if (e < n) TNI_STEP(e, (int)(n - e))
#undef TNI_STEP
}

/* o = factor o + sum over the current keys of s v, where o has as many columns as v. first: o has no numbers yet */
TNI_FAST void TNI_T(attend_row_values)(const TNI_T(attend_row) *w, bool first)
{
    const tni_attention *t = w->t;
    const tn_call       *c = t->call;
    const int64_t        dv = t->dv, v_head = c->in[2].strides[2], o_head = c->out[0].strides[2];
    const int64_t        half = (w->n + 1) / 2, h1 = w->h1;
    TNI_REAL            *out = TNI_ROW(&c->out[0], w->b, w->i, 0);
    for (int64_t h = w->h0; h < h1; h++) {
        TNI_REAL *o = out + h * o_head;
        if (first) memset(o, 0, sizeof *o * (size_t)dv);
        else if (w->factor[h] != 1) TNI_T(attend_copy)(o, o, dv, dv, w->factor[h]);
    }
    for (int64_t j = 0; j < half; j++) {
        const TNI_REAL *s = TNI_T(attend_row_at)(w, 0, 0) + j;
        const bool      pair = j + half < w->n;             /* the middle key of an odd number is alone */
        const TNI_REAL *x = TNI_ROW(&c->in[2], w->b, w->j + j, 0), *y = pair ? x + half * c->in[2].strides[1] : x;
        for (int64_t h = w->h0; h < h1; h++) {
            const TNI_REAL *p = s + h * TNI_ATTEND_LONG;
            TNI_REAL       *o = out + h * o_head;
            if (pair) TNI_T(attend_row_add)(true, o, x + h * v_head, p[0], y + h * v_head, p[half], dv);
            else TNI_T(attend_row_add)(false, o, x + h * v_head, p[0], NULL, 0, dv);
        }
    }
}

/* o = c_i o, and the row's saved number, see attend_finish */
TNI_FAST void TNI_T(attend_row_finish)(const TNI_T(attend_row) *w, tni_seen seen)
{
    const tni_attention *t = w->t;
    const tn_call       *c = t->call;
    TNI_REAL            *stat = (TNI_REAL *)c->out[1].data;
    for (int64_t h = w->h0; h < w->h1; h++) {
        const double sum = (double)w->sum[h] + (t->sums ? c->f[3] : 0);
        const bool   none = seen.low == seen.high || (t->softmax && sum == 0);
        const double scale = t->sums ? 1 / sum : tni_attend_row_scale(c, seen.n) / (t->softmax ? sum : 1);
        TNI_REAL    *o = TNI_ROW(&c->out[0], w->b, w->i, h);
        if (none) memset(o, 0, sizeof *o * (size_t)t->dv);
        else TNI_T(attend_copy)(o, o, t->dv, t->dv, (TNI_REAL)scale);
        if (stat)
            stat[(w->b * t->heads + h) * t->queries + w->i] =
                (TNI_REAL)(!t->softmax ? sum : none ? -HUGE_VAL : (double)w->top[h] + log(sum));
    }
}

/* Task: one query of a group of heads. */
TNI_FAST void TNI_T(attention_row_task)(void *arg, int64_t task, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const int64_t        row = task / t->parts, each = tni_ceil_div(t->heads, t->parts);
    const tni_seen       seen = tni_attend_seen(t->call, row % t->queries);
    TNI_T(attend_row)    w;
    w.t = t;
    w.b = row / t->queries;
    w.i = row % t->queries;
    w.h0 = tni_min(task % t->parts * each, t->heads);
    w.h1 = tni_min(w.h0 + each, t->heads);
    w.s = (TNI_REAL *)(void *)(t->scratch + (size_t)worker * t->each);
    w.top = w.s + t->sets * t->heads * TNI_ATTEND_LONG;
    w.sum = w.top + t->heads;
    w.factor = w.sum + t->heads;
    for (int64_t h = w.h0; h < w.h1; h++) {
        w.top[h] = TNI_LEAST;
        w.sum[h] = 0;
    }
    for (w.j = seen.low; w.j < seen.high; w.j += TNI_ATTEND_LONG) {
        w.n = tni_min(TNI_ATTEND_LONG, seen.high - w.j);
        TNI_T(attend_row_scores)(&w);
        for (int64_t h = w.h0; h < w.h1; h++)
            if (t->softmax) TNI_T(attend_row_softmax)(&w, h);
            else TNI_T(attend_row_square)(&w, h);
        TNI_T(attend_row_values)(&w, w.j == seen.low);
    }
    TNI_T(attend_row_finish)(&w, seen);
}

/* Heads are divided, which does not change their numbers, if there are fewer rows than threads. */
TNI_FAST tn_status TNI_T(attention_rows_run)(tni_attention *t)
{
    const int64_t rows = t->all_heads / t->heads * t->queries, work = t->all_heads * t->keys * (t->sets * t->d + t->dv);
    t->parts = tni_min(t->heads, tni_ceil_div(t->cpu->pool.threads, rows));
    if (!tni_attention_scratch(t, t->heads * (t->sets * TNI_ATTEND_LONG + 3), 0, sizeof(TNI_REAL))) return TN_ERR_MEMORY;
    tni_parallel_for(work < TNI_CPU_ALONE ? &tni_alone : &t->cpu->pool, rows * t->parts, TNI_T(attention_row_task), t);
    return TN_OK;
}

/* The numbers of scratch that attend_open uses */
TNI_FAST int64_t TNI_T(attend_numbers)(const tni_attention *t, bool backward)
{
    TNI_T(attend) w;
    TNI_T(attend_open)(&w, t, 0, 0, 0, t->dv, false, backward);
    return w.taken;
}

#if TNI_BITS == 32
TNI_FAST tn_status TNI_T(heads_run)(tni_attention *t, bool backward);            /* >>pass-attention-bf16 */
#endif

TNI_FAST tn_status TNI_T(attention_run)(tni_cpu *cpu, const tn_call *c)
{
    tni_attention t = tni_attention_of(cpu, c, TNI_SIDE);
    if (t.all_heads * t.blocks == 0) return TN_OK;
#if TNI_BITS == 32
    if (tni_call_has_bf16(c)) return TNI_T(heads_run)(&t, false);
#endif
    if (t.queries <= TNI_ATTEND_LEAST) return TNI_T(attention_rows_run)(&t);
    if (!tni_attention_scratch(&t, TNI_T(attend_numbers)(&t, false), 0, sizeof(TNI_REAL))) return TN_ERR_MEMORY;
    tni_parallel_for(&cpu->pool, t.all_heads * t.blocks, TNI_T(attention_task), &t);
    return TN_OK;
}
#endif
