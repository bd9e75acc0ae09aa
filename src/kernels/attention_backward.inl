#if TNI_SEQUENCES
/* ---- attention, backward pass, see >>op-attention ------------------------ >>pass-attention-backward */

/* u and w of the block's queries, see >>op-attention: u in rows and transposed. With `one`, w follows u. */
TNI_FAST void TNI_T(attend_upstream)(TNI_T(attend) *w)
{
    const tni_attention *t = w->t;
    const tn_call       *c = t->call;
    const int64_t        row = (w->b * t->heads + w->h) * t->queries + w->i0;
    const TNI_REAL      *stat = c->in[4].data ? (const TNI_REAL *)c->in[4].data + row : NULL;
    for (int64_t i = 0; i < TNI_SIDE; i++) w->top[i] = w->sum[i] = 0;
    for (int64_t i = 0; i < w->n; i++) {
        const TNI_REAL *dout = TNI_ROW(&c->in[5], w->b, w->i0 + i, w->h);
        double          scale = t->sums ? 1 / (double)stat[i] : tni_attend_row_scale(c, tni_attend_seen(c, w->i0 + i).n);
        TNI_V           products = TNI_SET(0);
        if (t->softmax || t->sums) {
            const TNI_REAL *o = TNI_ROW(&c->in[3], w->b, w->i0 + i, w->h);
            for (int64_t e = 0; e < t->dv; e += TNI_W) {
                const int k = TNI_T(lanes)(t->dv - e);
                products = TNI_FMA(TNI_LOAD(dout + e, k), TNI_LOAD(o + e, k), products);
            }
        }
        double dot = (double)TNI_T(lane_sum)(products);
        TNI_T(attend_copy)(w->u_rows + i * w->padded, dout, t->dv, w->padded, (TNI_REAL)scale);
        w->sum[i] = (TNI_REAL)(-dot * (t->sums ? scale : 1));
        if (w->one) w->u_rows[i * w->padded + t->dv] = w->sum[i];
        if (t->softmax) w->top[i] = stat[i] == (TNI_REAL)-HUGE_VAL ? (TNI_REAL)HUGE_VAL : stat[i];
    }
    TNI_T(attend_transpose)(w->u, w->u_rows, w->padded, w->n, w->width, 1);
}

/* From both scores and dP: P, and ds in place of the scores; with one set of scores, P in place of dP. */
TNI_FAST void TNI_T(attend_slopes)(TNI_T(attend) *w)
{
    const tni_attention *t = w->t;
    for (int64_t a = 0; a < w->lanes; a += TNI_W) {
        const TNI_T(span) r = TNI_T(attend_span)(w, a);
        const TNI_V       l = TNI_LOAD(w->top + a, TNI_W), wi = TNI_LOAD(w->sum + a, TNI_W);
        TNI_REAL         *s = w->s[0] + a, *s2 = w->s[t->sets - 1] + a, *p = w->p + a;
        for (int64_t j = r.from * TNI_SIDE; j < r.to * TNI_SIDE; j += TNI_SIDE) {
            const TNI_V x = TNI_LOAD(s + j, TNI_W), dp = TNI_LOAD(p + j, TNI_W) + wi;
            if (t->softmax) {
                const TNI_V e = TNI_T(attend_exp)(x - l);
                TNI_STORE(p + j, e, TNI_W);
                TNI_STORE(s + j, e * dp, TNI_W);
            } else if (t->squared) {
                TNI_STORE(p + j, x * x, TNI_W);
                TNI_STORE(s + j, (x + x) * dp, TNI_W);
            } else {
                const TNI_V y = TNI_LOAD(s2 + j, TNI_W);
                TNI_STORE(p + j, x * y, TNI_W);
                TNI_STORE(s + j, y * dp, TNI_W);
                TNI_STORE(s2 + j, x * dp, TNI_W);
            }
        }
        TNI_T(attend_clear)(w, &r, a, w->p);
        for (int64_t set = 0; set < t->sets; set++) TNI_T(attend_clear)(w, &r, a, w->s[set]);
    }
}

/* The pairs of the keys [j0,j1) and the block: adds to dv and dk, and the share of dq to w->out. */
TNI_FAST void TNI_T(attend_pairs)(TNI_T(attend) *w, int64_t j0, int64_t j1)
{
    const tni_attention *t = w->t;
    const tn_view       *dk = &t->call->out[1], *dv = &t->call->out[2];
    TNI_T(attend_keys)(w, j0, j1, true, false);
    for (int64_t set = 0; set < t->sets; set++) TNI_T(attend_scores)(w, &w->k[set], t->d, w->q[set], w->s[set]);
    TNI_T(attend_scores)(w, &w->v, t->dv, w->u, w->p);
    TNI_T(attend_slopes)(w);
    if (dv->data)
        TNI_T(attend_to_keys)(w, w->p, w->u_rows, w->padded, TNI_ROW(dv, w->b, j0, w->h), dv->strides[1], t->dv);
    for (int64_t set = 0; set < t->sets; set++) {
        if (dk->data)
            TNI_T(attend_to_keys)(w, w->s[set], w->q_rows[set], w->padded_d, TNI_ROW(dk, w->b, j0, w->h + set * t->heads),
                                  dk->strides[1], t->d);
        if (t->call->out[0].data)
            TNI_T(attend_to_queries)(w, w->s[set], &w->k[set], w->padded_d, w->out + set * TNI_SIDE * w->padded_d);
    }
}

/* Row i of a part's own dq */
TNI_INLINE TNI_REAL *TNI_T(attend_part)(const tni_attention *t, int64_t part, int64_t head, int64_t set, int64_t i)
{
    return (TNI_REAL *)(void *)t->partial + (((part * t->all_heads + head) * t->sets + set) * t->queries + i) * t->d;
}

/* Rows [from,to) of a head's gradient = 0. To overwrite is to add to these zeros, which are in the cache: so it makes no
   difference to the bits, not even to the sign of a 0. */
TNI_FAST void TNI_T(attend_zero)(const tni_attention *t, const tn_view *dx, int64_t head, int64_t from, int64_t to)
{
    for (int64_t i = from; dx->data && i < to; i++)
        for (int64_t h = head % t->heads; h < dx->shape[2]; h += t->heads)
            memset(TNI_ROW(dx, head / t->heads, i, h), 0, sizeof(TNI_REAL) * (size_t)dx->shape[3]);
}

/* Without queries: dk = 0 and dv = 0, if they are overwritten */
TNI_FAST tn_status TNI_T(attend_no_queries)(const tni_attention *t)
{
    for (int64_t head = 0; !t->call->accumulate && head < t->all_heads; head++)
        for (int i = 1; i < 3; i++) TNI_T(attend_zero)(t, &t->call->out[i], head, 0, t->keys);
    return TN_OK;
}

/* dq (+)= the sums of the block, or the part's own dq = these */
TNI_FAST void TNI_T(attend_give)(const TNI_T(attend) *w, int64_t part)
{
    const tni_attention *t = w->t;
    const tn_view       *dq = &t->call->out[0];
    if (t->parts == 1 && !t->local && !t->call->accumulate)
        TNI_T(attend_zero)(t, dq, w->b * t->heads + w->h, w->i0, w->i0 + w->n);
    for (int64_t set = 0; dq->data && set < t->sets; set++)
        for (int64_t i = 0; i < w->n; i++) {
            const TNI_REAL *from = w->out + (set * TNI_SIDE + i) * w->padded_d;
            if (t->parts == 1)
                TNI_T(row_add)(TNI_ROW(dq, w->b, w->i0 + i, w->h + set * t->heads), from, t->d, (TNI_REAL)t->call->f[0]);
            else
                memcpy(TNI_T(attend_part)(t, part, w->b * t->heads + w->h, set, w->i0 + i), from,
                       sizeof *from * (size_t)t->d);
        }
}

/* Task: one head with a part of its keys, or, if only keys of its own block are visible, a block of one head, which adds to
   what the states gave. */
TNI_FAST void TNI_T(attention_backward_task)(void *arg, int64_t task, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const int64_t        cuts = t->local ? t->blocks : t->parts, part = t->local ? 0 : task % cuts;
    int64_t              i = t->local ? task % cuts : 0, i_end = t->local ? i + 1 : t->blocks;
    TNI_T(attend)        w;
    TNI_T(attend_open)(&w, t, task / cuts, worker, 0, t->dv, false, true);
    for (int64_t k = part * TNI_ATTEND_KEYS; !t->local && !t->call->accumulate && k < t->keys; k += cuts * TNI_ATTEND_KEYS) {
        TNI_T(attend_zero)(t, &t->call->out[1], task / cuts, k, tni_min(k + TNI_ATTEND_KEYS, t->keys));
        TNI_T(attend_zero)(t, &t->call->out[2], task / cuts, k, tni_min(k + TNI_ATTEND_KEYS, t->keys));
    }
    for (; i < i_end; i++) {
        TNI_T(attend_queries)(&w, i * TNI_SIDE);
        TNI_T(attend_upstream)(&w);
        memset(w.out, 0, sizeof *w.out * (size_t)(t->sets * TNI_SIDE * w.padded_d));
        int64_t end = w.high[w.n - 1];
        for (int64_t j = t->local ? w.low[0] : w.low[0] / TNI_ATTEND_KEYS * TNI_ATTEND_KEYS; j < end; j += TNI_ATTEND_KEYS)
            if (t->local || j / TNI_ATTEND_KEYS % t->parts == part)
                TNI_T(attend_pairs)(&w, tni_max(j, w.low[0]), tni_min(j + TNI_ATTEND_KEYS, end));
        TNI_T(attend_give)(&w, part);
    }
}

/* Task: a block of a head's dq (+)= the parts, in their order */
TNI_FAST void TNI_T(attention_parts_task)(void *arg, int64_t task, int worker)
{
    const tni_attention *t = (const tni_attention *)arg;
    const tn_view       *dq = &t->call->out[0];
    const int64_t        head = task / t->blocks, i0 = task % t->blocks * TNI_SIDE;
    (void)worker;
    if (!t->call->accumulate) TNI_T(attend_zero)(t, dq, head, i0, tni_min(i0 + TNI_SIDE, t->queries));
    for (int64_t set = 0; set < t->sets; set++)
        for (int64_t i = i0; i < tni_min(i0 + TNI_SIDE, t->queries); i++)
            for (int64_t part = 0; part < t->parts; part++)
                TNI_T(row_add)(TNI_ROW(dq, head / t->heads, i, head % t->heads + set * t->heads),
                                  TNI_T(attend_part)(t, part, head, set, i), t->d, (TNI_REAL)t->call->f[0]);
}

TNI_FAST tn_status TNI_T(attention_backward_run)(tni_cpu *cpu, const tn_call *c)
{
    tni_attention t = tni_attention_of(cpu, c, TNI_SIDE);
    double        shared = 0;
#if TNI_BITS == 32
    if (tni_call_has_bf16(c)) return TNI_T(heads_run)(&t, true);
#endif
    if (t.all_heads * t.blocks == 0) return TNI_T(attend_no_queries)(&t);
    if (t.all_heads < TNI_ATTEND_FEW && t.keys >= 2 * TNI_ATTEND_PARTS * TNI_ATTEND_KEYS) {
        t.parts = TNI_ATTEND_PARTS;
        shared = (double)(t.parts * t.all_heads * t.sets) * (double)t.queries * (double)t.d;
    }
    if (!tni_attention_scratch(&t, TNI_T(attend_numbers)(&t, true), shared, sizeof(TNI_REAL))) return TN_ERR_MEMORY;
    tni_parallel_for(&cpu->pool, t.all_heads * t.parts, TNI_T(attention_backward_task), &t);
    if (t.parts > 1 && c->out[0].data) tni_parallel_for(&cpu->pool, t.all_heads * t.blocks, TNI_T(attention_parts_task), &t);
    return TN_OK;
}

#if TNI_BITS == 32
/* ---- attention of BF16 operands ----------------------------------------- >>pass-attention-bf16
   A task is a head: its rows are widened into scratch that stays in the cache, computed in F32, and its results are rounded
   once. The bits are those of F32 copies of whole operands. */
typedef struct TNI_T(heads) {
    tni_attention t;
    int64_t       numbers;              /* of a worker's scratch, before the rows */
    bool          backward;
} TNI_T(heads);

/* The rows [T,sets,d] of a head: from the operand to x, in F32, or back. */
TNI_FAST void TNI_T(head_rows)(const tn_view *v, int64_t head, int64_t heads, float *x, bool back)
{
    const int64_t sets = v->shape[2] / heads, d = v->shape[3];
    for (int64_t t = 0; t < v->shape[1]; t++)
        for (int64_t s = 0; s < sets; s++, x += d) {
            const int64_t at = head / heads * v->strides[0] + t * v->strides[1] + (head % heads + s * heads) * v->strides[2];
            TNI_REQUEST((const char *)v->data, (at + 8 * v->strides[1]) * (int64_t)tni_dtype_size(v->dtype), 1);
            if (v->dtype == TN_BF16 && back) TNI_T(halve)((uint16_t *)v->data + at, x, d);
            else if (v->dtype == TN_BF16) TNI_T(widen)(x, (const uint16_t *)v->data + at, d);
            else if (back) memcpy((float *)v->data + at, x, sizeof *x * (size_t)d);
            else memcpy(x, (const float *)v->data + at, sizeof *x * (size_t)d);
        }
}

TNI_FAST void TNI_T(heads_task)(void *arg, int64_t head, int worker)
{
    const TNI_T(heads) *w = (const TNI_T(heads) *)arg;
    const tn_call      *c = w->t.call;
    tn_call             one = *c;
    tni_attention       t = w->t;
    float              *to = (float *)(void *)(t.scratch + (size_t)worker * t.each) + w->numbers;
    for (int64_t k = 0; k < c->n_in + c->n_out; k++) {
        const bool     is_in = k < c->n_in;
        const tn_view *from = is_in ? &c->in[k] : &c->out[k - c->n_in];
        tn_view       *v = is_in ? &one.in[k] : &one.out[k - c->n_in];
        if (!from->data || from->rank < 3) continue;
        v->shape[0] = 1;
        if (from->rank == 3) {                          /* a number per query */
            v->shape[1] = 1;
            v->data = (float *)from->data + head * t.queries;
            continue;
        }
        v->dtype = TN_F32;
        v->shape[2] /= t.heads;
        v->strides[2] = v->shape[3];
        v->strides[1] = v->shape[2] * v->shape[3];
        v->data = to;
        if (is_in || tni_call_adds(c, (int)(k - c->n_in))) TNI_T(head_rows)(from, head, t.heads, to, false);
        to += v->shape[1] * v->strides[1];
    }
    t.call = &one;
    t.heads = t.all_heads = 1;
    if (w->backward) TNI_T(attention_backward_task)(&t, 0, worker);
    for (int64_t block = 0; !w->backward && block < t.blocks; block++) TNI_T(attention_task)(&t, block, worker);
    for (int64_t k = 0; k < c->n_out; k++)
        if (c->out[k].data && c->out[k].rank == 4)
            TNI_T(head_rows)(&c->out[k], head, w->t.heads, (float *)one.out[k].data, true);
}

/* Few heads are computed in parts, and few queries in the order of memory: both of F32 copies. */
TNI_FAST tn_status TNI_T(heads_run)(tni_attention *t, bool backward)
{
    const tn_call *c = t->call;
    TNI_T(heads)   w;
    int64_t        numbers;
    if (t->all_heads < TNI_ATTEND_FEW || (!backward && t->queries <= TNI_ATTEND_LEAST)) return TN_ERR_DTYPE;
    w.numbers = numbers = (TNI_T(attend_numbers)(t, backward) + 15) / 16 * 16;
    for (int64_t k = 0; k < c->n_in + c->n_out; k++) {
        const tn_view *v = k < c->n_in ? &c->in[k] : &c->out[k - c->n_in];
        if (v->data && v->rank == 4) numbers += v->shape[1] * v->shape[2] / t->heads * v->shape[3];
    }
    if (!tni_attention_scratch(t, numbers, 0, sizeof(float))) return TN_ERR_MEMORY;
    w.t = *t;
    w.backward = backward;
    tni_parallel_for(&t->cpu->pool, t->all_heads, TNI_T(heads_task), &w);
    return TN_OK;
}
#endif

#endif
