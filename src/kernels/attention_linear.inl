#if TNI_SEQUENCES
/* ---- attention in linear time, see >>op-attention_linear ---------------- >>pass-attention_linear
   A chunk scan. Products with phi(x) = x1 (x) x2 are ordinary products of depth or height F, of which a panel at a time is
   computed: each of its numbers is used for all columns of v. A state is [F,padded], row by row of a; if squared, all
   features have weight 1 when they are added, and those off the diagonal weight 2 when they are read. A task processes one
   head from end to end: forwards with its part of v's columns, if heads are few; backwards once for dq and once for dk
   and dv. The pairs inside a block are those of >>op-attention with the block's own keys. */

/* S += phi(x)^T y for n rows of x1 and x2, n of y [n,padded]: for each a, x2^T (x1_a y), with the factor in brackets in
   `scaled`. */
TNI_FAST void TNI_T(state_add)(bool squared, int64_t d, int64_t n, const TNI_REAL *x1, const TNI_REAL *x2, int64_t row,
                               const TNI_REAL *y, int64_t y_row, int64_t padded, TNI_REAL *scaled, TNI_REAL *S)
{
    for (int64_t a = 0; a < d; a++) {
        const int64_t first = squared ? a : 0;
        for (int64_t j = 0; j < n; j++) {
            const TNI_V by = TNI_SET(x1[j * row + a]);
            for (int64_t e = 0; e < padded; e += TNI_W)
                TNI_STORE(scaled + j * padded + e, TNI_LOAD(y + j * y_row + e, TNI_W) * by, TNI_W);
        }
        TNI_T(attend_product)(true, d - first, padded, n, x2 + first, 1, row, scaled, padded, S, padded);
        S += (d - first) * padded;
    }
}

/* y [n,padded] += phi(x) S. transposed: scratch for both x in panels; panel [TNI_ATTEND_SLAB,TNI_WIDE] */
TNI_FAST void TNI_T(state_read)(bool squared, int64_t d, int64_t n, const TNI_REAL *x1, const TNI_REAL *x2, int64_t row,
                                const TNI_REAL *S, int64_t padded, TNI_REAL *transposed, TNI_REAL *panel, TNI_REAL *y)
{
    const int64_t slab = tni_max(TNI_ATTEND_SLAB / d, 1), tiles = tni_ceil_div(n, TNI_MR), size = d * TNI_WIDE;
    TNI_REAL     *transposed2 = squared ? transposed : transposed + tiles * size;
    for (int64_t i = 0; i < tiles; i++) {
        const int rows = (int)tni_min(TNI_MR, n - i * TNI_MR);
        TNI_T(panel)(transposed + i * size, TNI_WIDE, x1 + i * TNI_MR * row, row, 1, rows, d);
        if (!squared) TNI_T(panel)(transposed2 + i * size, TNI_WIDE, x2 + i * TNI_MR * row, row, 1, rows, d);
    }
    for (int64_t a0 = 0; a0 < d; a0 += slab) {
        const int64_t a_end = tni_min(a0 + slab, d);
        int64_t       depth = 0;
        for (int64_t i = 0; i < tiles; i++) {
            TNI_REAL *to = panel;
            for (int64_t a = a0; a < a_end; a++)
                for (int64_t q = 0; q < TNI_WIDE; q += TNI_W) {
                    const TNI_REAL *from = transposed2 + i * size + q;
                    const TNI_V     x = TNI_LOAD(transposed + i * size + a * TNI_WIDE + q, TNI_W);
                    const TNI_V     factor = x * TNI_SET(squared ? 2 : 1);
                    TNI_REAL       *at = to + q;
                    for (int64_t b = squared ? a : 0; b < d; b++, at += TNI_WIDE)
                        TNI_STORE(at, factor * TNI_LOAD(from + b * TNI_WIDE, TNI_W), TNI_W);
                    if (squared) TNI_STORE(to + q, x * x, TNI_W);
                    if (q + TNI_W == TNI_WIDE) to = at - q;
                }
            depth = (to - panel) / TNI_WIDE;
            TNI_T(attend_product)(true, tni_min(TNI_MR, n - i * TNI_MR), padded, depth, panel, 1, TNI_WIDE, S, padded,
                                  y + i * TNI_MR * padded, padded);
        }
        S += depth * padded;
    }
}

/* g1, g2 [d,TNI_SIDE] += the gradients of phi(x).(S u) with respect to x1, x2, which are transposed. Of them and of
   u [width,TNI_SIDE] the first `lanes` count. squared: there is one x and one g. tile [d,TNI_NR] */
TNI_FAST void TNI_T(state_slope)(bool squared, int64_t d, int64_t lanes, const TNI_REAL *x1, const TNI_REAL *x2,
                                 const TNI_REAL *S, int64_t padded, const TNI_REAL *u, int64_t width, TNI_REAL *tile,
                                 TNI_REAL *g1, TNI_REAL *g2)
{
    const TNI_V twice = TNI_SET(squared ? 2 : 1);
    for (int64_t a = 0; a < d; a++) {
        const int64_t first = squared ? a : 0, count = d - first;
        for (int64_t p = 0; p < lanes; p += TNI_NR) {
            const int64_t across = tni_min(TNI_NR, lanes - p);
            TNI_T(attend_product)(false, count, across, width, S, padded, 1, u + p, TNI_SIDE, tile, TNI_NR);
            for (int64_t q = 0; q < across; q += TNI_W) {
                const TNI_V     x = TNI_LOAD(x1 + a * TNI_SIDE + p + q, TNI_W), factor = x * twice;
                const TNI_REAL *from = tile + q, *other = x2 + first * TNI_SIDE + p + q;
                TNI_REAL       *to = g2 + first * TNI_SIDE + p + q;
                TNI_V           sum = TNI_SET(0), more = sum;
                int64_t         b = 0;
                if (squared) {                              /* x_a^2 */
                    more = (x + x) * TNI_LOAD(from, TNI_W);
                    b = 1;
                }
                for (; b < count; b++) {
                    const TNI_V t = TNI_LOAD(from + b * TNI_NR, TNI_W);
                    sum = TNI_FMA(t, TNI_LOAD(other + b * TNI_SIDE, TNI_W), sum);
                    TNI_STORE(to + b * TNI_SIDE, TNI_FMA(t, factor, TNI_LOAD(to + b * TNI_SIDE, TNI_W)), TNI_W);
                }
                sum = TNI_FMA(sum, twice, more);
                to = g1 + a * TNI_SIDE + p + q;
                TNI_STORE(to, TNI_LOAD(to, TNI_W) + sum, TNI_W);
            }
        }
        S += count * padded;
    }
}

/* The state of a task of the linear form, in addition to its block. */
typedef struct TNI_T(linear) {
    TNI_T(attend) w;
    int64_t   features, added;
    TNI_REAL *S, *panel, *transposed;
    TNI_REAL *rows[2];                                  /* [TNI_ATTEND_KEYS,padded_d] of q, scaled, or k */
    TNI_REAL *x[2], *g[2], *tile, *y;                   /* backwards: [d,TNI_SIDE]; [d,TNI_NR]; [TNI_SIDE, the wider] */
} TNI_T(linear);

TNI_FAST void TNI_T(linear_open)(TNI_T(linear) *l, const tni_attention *t, int64_t head, int worker, int64_t first,
                                 int64_t end, bool one, bool backward)
{
    TNI_T(attend_open)(&l->w, t, head, worker, first, end, one, backward);
    l->features = tni_attend_features(t->call->i[0], t->d);
    l->added = 0;
    l->S = TNI_T(attend_take)(&l->w, l->features * l->w.padded);
    l->panel = TNI_T(attend_take)(&l->w, tni_max(tni_max(TNI_ATTEND_SLAB, t->d) * TNI_WIDE, TNI_ATTEND_KEYS * l->w.padded));
    l->transposed = TNI_T(attend_take)(&l->w, t->sets * tni_ceil_div(TNI_SIDE, TNI_MR) * TNI_WIDE * t->d);
    for (int64_t set = 0; set < t->sets; set++) l->rows[set] = TNI_T(attend_take)(&l->w, TNI_ATTEND_KEYS * l->w.padded_d);
    if (!backward) return;
    for (int64_t set = 0; set < t->sets; set++) {
        l->x[set] = TNI_T(attend_take)(&l->w, t->d * TNI_SIDE);
        l->g[set] = TNI_T(attend_take)(&l->w, t->d * TNI_SIDE);
    }
    l->tile = TNI_T(attend_take)(&l->w, t->d * TNI_NR);
    l->y = TNI_T(attend_take)(&l->w, TNI_SIDE * tni_max(l->w.padded, l->w.padded_d));
}

TNI_INLINE void TNI_T(linear_clear)(TNI_T(linear) *l)
{
    memset(l->S, 0, sizeof *l->S * (size_t)(l->features * l->w.padded));
}

/* Rows [from,from+n) of q or k, scaled */
TNI_FAST void TNI_T(linear_rows)(TNI_T(linear) *l, const tn_view *x, int64_t from, int64_t n, TNI_REAL scale)
{
    const tni_attention *t = l->w.t;
    for (int64_t set = 0; set < t->sets; set++) {
        const TNI_REAL *row = TNI_ROW(x, l->w.b, from, l->w.h + set * t->heads);
        for (int64_t i = 0; i < n; i++)
            TNI_T(attend_copy)(l->rows[set] + i * l->w.padded_d, row + i * x->strides[1], t->d, l->w.padded_d, scale);
    }
}

TNI_FAST void TNI_T(linear_values)(TNI_T(linear) *l, int64_t from, int64_t n)
{
    const tn_view *v = &l->w.t->call->in[2];
    TNI_T(attend_lines)(&l->w.v, TNI_ROW(v, l->w.b, from, l->w.h) + l->w.first, v->strides[1], n, l->w.width - l->w.one,
                        true, l->w.one);
}

/* Adds the keys before `end` to the state. */
TNI_FAST void TNI_T(linear_take)(TNI_T(linear) *l, int64_t end)
{
    const tni_attention *t = l->w.t;
    while (l->added < end) {
        const int64_t n = tni_min(TNI_ATTEND_KEYS, end - l->added);
        TNI_T(linear_rows)(l, &t->call->in[1], l->added, n, 1);
        TNI_T(linear_values)(l, l->added, n);
        TNI_T(state_add)(t->squared, t->d, n, l->rows[0], l->rows[t->sets - 1], l->w.padded_d, l->w.v.at, l->w.v.row,
                         l->w.padded, l->panel, l->S);
        l->added += n;
    }
}

/* Copies this task's columns of the state operand to or from its own state. */
TNI_FAST void TNI_T(linear_state)(TNI_T(linear) *l, bool store)
{
    const tni_attention *t = l->w.t;
    const int64_t        all = t->dv + t->sums;
    TNI_REAL            *state = (TNI_REAL *)t->call->out[2].data + (l->w.b * t->heads + l->w.h) * l->features * all
                                 + l->w.first;
    for (int64_t f = 0; f < l->features; f++, state += all) {
        TNI_REAL *S = l->S + f * l->w.padded;
        TNI_T(attend_copy)(store ? state : S, store ? S : state, l->w.width, store ? l->w.width : l->w.padded, 1);
    }
}

/* The columns of v of a part */
TNI_FAST void TNI_T(linear_open_part)(TNI_T(linear) *l, const tni_attention *t, int64_t head, int64_t part, int worker)
{
    const int64_t first = part * t->columns;
    TNI_T(linear_open)(l, t, head, worker, first, tni_min(first + t->columns, t->dv), t->sums, false);
}

/* Task: one head, some columns of v */
TNI_FAST void TNI_T(attention_linear_task)(void *arg, int64_t task, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const tn_call       *c = t->call;
    TNI_T(linear)        l;
    TNI_T(linear_open_part)(&l, t, task / t->parts, task % t->parts, worker);
    if (c->out[2].data) TNI_T(linear_state)(&l, false);
    else TNI_T(linear_clear)(&l);
    for (int64_t i = 0; i < t->blocks; i++) {
        TNI_T(attend_queries)(&l.w, i * TNI_SIDE);
        TNI_T(linear_take)(&l, tni_attend_before(c, l.w.i0));
        TNI_T(attend_block)(&l.w);
        if (l.added > 0 || c->out[2].data) {
            TNI_T(linear_rows)(&l, &c->in[0], l.w.i0, l.w.n, (TNI_REAL)c->f[0]);
            TNI_T(state_read)(t->squared, t->d, l.w.n, l.rows[0], l.rows[t->sets - 1], l.w.padded_d, l.S, l.w.padded,
                              l.transposed, l.panel, l.w.out);
        }
        TNI_T(attend_finish)(&l.w);
    }
    if (!c->out[2].data) return;
    TNI_T(linear_take)(&l, t->keys);
    TNI_T(linear_state)(&l, true);
}

TNI_FAST tn_status TNI_T(attention_linear_run)(tni_cpu *cpu, const tn_call *c)
{
    tni_attention t = tni_attention_of(cpu, c, TNI_SIDE);
    int64_t       numbers = 0;
    t.local = true;
    if (t.all_heads * tni_max(t.queries, t.keys) == 0) return TN_OK;
    if (t.all_heads < TNI_ATTEND_FEW && !(t.sums && c->out[2].data)) {     /* the sums of a state are written by one task */
        t.columns = tni_ceil_div(tni_ceil_div(t.dv, TNI_ATTEND_PARTS), TNI_NR) * TNI_NR;
        t.columns = tni_max(t.columns, 1);
        t.parts = tni_max(tni_ceil_div(t.dv, t.columns), 1);
    }
    for (int64_t part = 0; part < t.parts; part++) {
        TNI_T(linear) l;
        TNI_T(linear_open_part)(&l, &t, 0, part, 0);
        numbers = tni_max(numbers, l.w.taken);
    }
    if (!tni_attention_scratch(&t, numbers, 0, sizeof(TNI_REAL))) return TN_ERR_MEMORY;
    tni_parallel_for(&cpu->pool, t.all_heads * t.parts, TNI_T(attention_linear_task), &t);
    return TN_OK;
}

/* dx += the gradient from the state and u, transposed, [width,lanes], for the n current rows of x. */
TNI_FAST void TNI_T(linear_slope)(TNI_T(linear) *l, int64_t n, const TNI_REAL *u, const tn_view *dx, int64_t from,
                                  TNI_REAL scale)
{
    const tni_attention *t = l->w.t;
    const int64_t        padded_d = l->w.padded_d;
    int64_t              set, i;
    for (set = 0; set < t->sets; set++) {
        TNI_T(attend_transpose)(l->x[set], l->rows[set], padded_d, n, t->d, 1);
        memset(l->g[set], 0, sizeof *l->g[set] * (size_t)(t->d * TNI_SIDE));
    }
    TNI_T(state_slope)(t->squared, t->d, TNI_WHOLE(n), l->x[0], l->x[t->sets - 1], l->S, l->w.padded, u, l->w.width, l->tile,
                       l->g[0], l->g[t->sets - 1]);
    for (set = 0; set < t->sets; set++) {
        TNI_T(panel)(l->y, (int)padded_d, l->g[set], TNI_SIDE, 1, (int)t->d, n);
        for (i = 0; i < n; i++)
            TNI_T(row_add)(TNI_ROW(dx, l->w.b, from + i, l->w.h + set * t->heads), l->y + i * padded_d, t->d, scale);
    }
}

/* dq of the block: the keys before it are in S. */
TNI_FAST void TNI_T(linear_queries)(TNI_T(linear) *l, int64_t i0)
{
    const tn_call *c = l->w.t->call;
    TNI_T(attend_queries)(&l->w, i0);
    TNI_T(linear_take)(l, tni_attend_before(c, i0));
    if (l->added == 0) return;
    TNI_T(attend_upstream)(&l->w);
    TNI_T(linear_rows)(l, &c->in[0], i0, l->w.n, (TNI_REAL)c->f[0]);
    TNI_T(linear_slope)(l, l->w.n, l->w.u, &c->out[0], i0, (TNI_REAL)c->f[0]);
}

/* dk and dv of the keys [from,to): the later queries are in S. */
TNI_FAST void TNI_T(linear_keys)(TNI_T(linear) *l, int64_t from, int64_t to)
{
    const tni_attention *t = l->w.t;
    const tn_view       *dk = &t->call->out[1], *dv = &t->call->out[2];
    int64_t              n;
    for (; from < to; from += n) {
        n = tni_min(TNI_SIDE, to - from);
        TNI_T(linear_rows)(l, &t->call->in[1], from, n, 1);
        if (dv->data) {
            memset(l->y, 0, sizeof *l->y * (size_t)(n * l->w.padded));
            TNI_T(state_read)(t->squared, t->d, n, l->rows[0], l->rows[t->sets - 1], l->w.padded_d, l->S, l->w.padded,
                              l->transposed, l->panel, l->y);
            for (int64_t i = 0; i < n; i++)
                TNI_T(row_add)(TNI_ROW(dv, l->w.b, from + i, l->w.h), l->y + i * l->w.padded, t->dv, 1);
        }
        if (!dk->data) continue;
        TNI_T(linear_values)(l, from, n);
        TNI_T(attend_transpose)(l->w.u, l->w.v.at, l->w.v.row, n, l->w.width, 1);
        TNI_T(linear_slope)(l, n, l->w.u, dk, from, 1);
    }
}

/* Task: dq of one head, or dk and dv of one head, which are computed from the last block to the first. */
TNI_FAST void TNI_T(attention_linear_backward_task)(void *arg, int64_t task, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const tn_call       *c = t->call;
    const int            sweeps = tni_attend_sweeps(c);
    const bool           queries = c->out[0].data && task % sweeps == sweeps - 1;
    int64_t              to = t->keys;
    TNI_T(linear)        l;
    TNI_T(linear_open)(&l, t, task / sweeps, worker, 0, t->dv, t->sums, true);
    TNI_T(linear_clear)(&l);
    if (!c->accumulate && queries) TNI_T(attend_zero)(t, &c->out[0], task / sweeps, 0, t->queries);
    for (int64_t i = 1; !c->accumulate && !queries && i < 3; i++) TNI_T(attend_zero)(t, &c->out[i], task / sweeps, 0, t->keys);
    for (int64_t i = 0; queries && i < t->blocks; i++) TNI_T(linear_queries)(&l, i * TNI_SIDE);
    if (queries) return;
    for (int64_t i = t->blocks - 1; i >= 0; i--) {
        const int64_t before = tni_attend_before(c, i * TNI_SIDE);
        if (i < t->blocks - 1) TNI_T(linear_keys)(&l, before, to);
        to = before;
        if (before == 0) break;
        TNI_T(attend_queries)(&l.w, i * TNI_SIDE);
        TNI_T(attend_upstream)(&l.w);
        TNI_T(linear_rows)(&l, &c->in[0], l.w.i0, l.w.n, (TNI_REAL)c->f[0]);
        TNI_T(state_add)(t->squared, t->d, l.w.n, l.rows[0], l.rows[t->sets - 1], l.w.padded_d, l.w.u_rows, l.w.padded,
                         l.w.padded, l.panel, l.S);
    }
    TNI_T(linear_keys)(&l, 0, to);
}

TNI_FAST tn_status TNI_T(attention_linear_backward_run)(tni_cpu *cpu, const tn_call *c)
{
    tni_attention t = tni_attention_of(cpu, c, TNI_SIDE);
    TNI_T(linear) l;
    t.local = true;
    if (t.all_heads * t.blocks == 0) return TNI_T(attend_no_queries)(&t);
    TNI_T(linear_open)(&l, &t, 0, 0, 0, t.dv, t.sums, true);
    if (!tni_attention_scratch(&t, tni_max(l.w.taken, TNI_T(attend_numbers)(&t, true)), 0, sizeof(TNI_REAL)))
        return TN_ERR_MEMORY;
    tni_parallel_for(&cpu->pool, t.all_heads * tni_attend_sweeps(c), TNI_T(attention_linear_backward_task), &t);
    tni_parallel_for(&cpu->pool, t.all_heads * t.blocks, TNI_T(attention_backward_task), &t);
    return TN_OK;
}

#endif
