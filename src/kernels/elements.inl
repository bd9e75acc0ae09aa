#if TNI_BITS == 32
/* ---- passes over elements ----------------------------------------------- >>pass-elements */

/* act(x) and its slope, see >>op-act. The switch is the same for a whole pass. */
TNI_INLINE TNI_V TNI_T(act)(int64_t kind, TNI_V x, TNI_V *slope)
{
    const TNI_V zero = TNI_SET(0.0f), one = TNI_SET(1.0f);
    TNI_V s, t;
    *slope = one;
    if (kind == TN_ACT_NONE) return x;      /* most frequent: without the switch's jump */
    switch (kind) {
    case TN_ACT_RELU:
        s = TNI_MAX(zero, x);
        *slope = TNI_PICK(x > zero, one, s);
        return s;
    case TN_ACT_RELU2:
        s = TNI_MAX(zero, x);
        *slope = s + s;
        return s * s;
    case TN_ACT_GELU: {
        TNI_V density, cdf = TNI_T(normal_cdf)(x, &density);
        *slope = TNI_FMA(x, density, cdf);
        return x * cdf;
    }
    case TN_ACT_SWISH:
        s = TNI_T(sigmoid)(x);
        *slope = TNI_FMA(x * s, one - s, s);
        return x * s;
    case TN_ACT_SIGMOID:
        s = TNI_T(sigmoid)(x);
        *slope = s * (one - s);
        return s;
    case TN_ACT_ABS:
        *slope = TNI_PICK(x > zero, one, TNI_PICK(x < zero, zero - one, x));       /* x: 0, or NaN */
        return TNI_ABS(x);
    case TN_ACT_ROUND:
        s = TNI_ABS(x);
        t = s + TNI_SET(8388608.0f);        /* 2^23: floats above are integers; stored, since the x87 keeps more digits */
        s = TNI_PICK(s < TNI_SET(8388608.0f), t - TNI_SET(8388608.0f), s);
        return TNI_T(real)(TNI_T(bits)(s) | (TNI_T(bits)(x) & TNI_T(set_u)(0x80000000u)));
    case TN_ACT_EXP:
        return *slope = TNI_T(exp)(x);
    case TN_ACT_TANH:
        s = TNI_T(tanh)(x);
        *slope = (one - s) * (one + s);
        return s;
    case TN_ACT_SQRT:
        s = TNI_SQRT(x);
        *slope = TNI_SET(0.5f) / s;
        return s;
    case TN_ACT_LOG:
        *slope = one / x;
        return TNI_T(log_of)(x);
    default:
        return x;
    }
}

#define TNI_PASS_OF(arg) \
    const tni_pass *p = (const tni_pass *)(arg); \
    const tn_call  *c = p->call; \
    const int64_t   begin = tni_pass_begin(p, task), end = tni_pass_end(p, task); \
    (void)worker
#define TNI_IN(k)  ((const float *)c->in[k].data)
#define TNI_OUT(k) ((float *)c->out[k].data)

TNI_FAST void TNI_T(act_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *x = TNI_IN(0);
    float       *y = TNI_OUT(0);
    int64_t      kind = c->i[0];
    for (int64_t i = begin; i < end; i += TNI_W) {
        int   k = TNI_T(lanes)(end - i);
        TNI_V slope;
        TNI_STORE(y + i, TNI_T(act)(kind, TNI_LOAD(x + i, k), &slope), k);
    }
}

TNI_FAST void TNI_T(act_backward_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *x = TNI_IN(0), *dy = TNI_IN(1);
    float       *dx = TNI_OUT(0);
    int64_t      kind = c->i[0];
    bool         add = c->accumulate;
    for (int64_t i = begin; i < end; i += TNI_W) {
        int   k = TNI_T(lanes)(end - i);
        TNI_V slope;
        TNI_T(act)(kind, TNI_LOAD(x + i, k), &slope);
        slope = slope * TNI_LOAD(dy + i, k);
        if (add) slope = slope + TNI_LOAD(dx + i, k);
        TNI_STORE(dx + i, slope, k);
    }
}

TNI_FAST void TNI_T(glu_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t h = c->out[0].shape[1], kind = c->i[0];
    for (int64_t r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * 2 * h;
        float       *y = TNI_OUT(0) + r * h;
        for (int64_t i = 0; i < h; i += TNI_W) {
            int   k = TNI_T(lanes)(h - i);
            TNI_V slope, gate = TNI_T(act)(kind, TNI_LOAD(x + i, k), &slope);
            TNI_STORE(y + i, gate * TNI_LOAD(x + h + i, k), k);
        }
    }
}

TNI_FAST void TNI_T(glu_backward_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t h = c->in[1].shape[1], kind = c->i[0];
    bool    add = c->accumulate;
    for (int64_t r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * 2 * h, *dy = TNI_IN(1) + r * h;
        float       *dx = TNI_OUT(0) + r * 2 * h;
        for (int64_t i = 0; i < h; i += TNI_W) {
            int   k = TNI_T(lanes)(h - i);
            TNI_V slope, d = TNI_LOAD(dy + i, k), gate = TNI_T(act)(kind, TNI_LOAD(x + i, k), &slope);
            slope = d * TNI_LOAD(x + h + i, k) * slope;
            gate = d * gate;
            if (add) {
                slope = slope + TNI_LOAD(dx + i, k);
                gate = gate + TNI_LOAD(dx + h + i, k);
            }
            TNI_STORE(dx + i, slope, k);
            TNI_STORE(dx + h + i, gate, k);
        }
    }
}

/* ---- prod, see >>op-prod: the product of the factors before each, then of those after it ---- >>pass-prod */
TNI_FAST void TNI_T(prod_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t h = c->out[0].shape[1], all = c->i[0];
    for (int64_t r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * all * h;
        float       *y = TNI_OUT(0) + r * h;
        for (int64_t i = 0; i < h; i += TNI_W) {
            int   k = TNI_T(lanes)(h - i);
            TNI_V v = TNI_LOAD(x + i, k);
            for (int64_t e = 1; e < all; e++) v = v * TNI_LOAD(x + e * h + i, k);
            TNI_STORE(y + i, v, k);
        }
    }
}

TNI_FAST void TNI_T(prod_backward_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t h = c->in[1].shape[1], all = c->i[0];
    bool    add = c->accumulate;
    TNI_V   front[TNI_PROD_MOST];
    for (int64_t r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * all * h, *dy = TNI_IN(1) + r * h;
        float       *dx = TNI_OUT(0) + r * all * h;
        for (int64_t i = 0; i < h; i += TNI_W) {
            int   k = TNI_T(lanes)(h - i);
            TNI_V behind = TNI_SET(1.0f);
            front[0] = TNI_LOAD(dy + i, k);
            for (int64_t e = 1; e < all; e++) front[e] = front[e - 1] * TNI_LOAD(x + (e - 1) * h + i, k);
            for (int64_t e = all - 1; e >= 0; e--) {
                float *to = dx + e * h + i;
                TNI_V  d = front[e] * behind;
                behind = behind * TNI_LOAD(x + e * h + i, k);
                if (add) d = d + TNI_LOAD(to, k);
                TNI_STORE(to, d, k);
            }
        }
    }
}

/* ---- cast: F32 to BF16 and back ----------------------------------------- >>pass-cast
   Bits as tni_bf16_bits and tni_bf16_value give them. */
#if TNI_LEVEL > 0 || TNI_PLAIN_BYTES
typedef uint16_t TNI_T(half) __attribute__((vector_size(sizeof(TNI_V) / 2)));

TNI_FAST void TNI_T(widen)(float *to, const uint16_t *from, int64_t n)
{
    TNI_T(half) h;
    TNI_U       u;
    for (; n >= TNI_W; n -= TNI_W, to += TNI_W, from += TNI_W) {
        memcpy(&h, from, sizeof h);
        u = __builtin_convertvector(h, TNI_U) << 16;
        memcpy(to, &u, sizeof u);
    }
    for (; n > 0; n--) *to++ = tni_bf16_value(*from++);
}

TNI_FAST void TNI_T(halve)(uint16_t *to, const float *from, int64_t n)
{
    TNI_T(half) h;
    TNI_U       u, is_nan;
    for (; n >= TNI_W; n -= TNI_W, to += TNI_W, from += TNI_W) {
        memcpy(&u, from, sizeof u);
        is_nan = (TNI_U)((u & 0x7fffffffu) > TNI_T(set_u)(0x7f800000u));
        u = ((u + 0x7fffu + (u >> 16 & 1u)) >> 16 & ~is_nan) | ((u >> 16 | 0x40u) & is_nan);
        h = __builtin_convertvector(u, TNI_T(half));
        memcpy(to, &h, sizeof h);
    }
    for (; n > 0; n--) *to++ = tni_bf16_bits(*from++);
}
#else
TNI_FAST void TNI_T(widen)(float *to, const uint16_t *from, int64_t n) { while (n-- > 0) *to++ = tni_bf16_value(*from++); }
TNI_FAST void TNI_T(halve)(uint16_t *to, const float *from, int64_t n) { while (n-- > 0) *to++ = tni_bf16_bits(*from++); }
#endif

TNI_FAST void TNI_T(cast_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const tni_lines *l = &((const tni_line_pass *)arg)->lines;
    const bool       halve = c->out[0].dtype == TN_BF16;
    int64_t          at[3];
    for (int64_t i = begin; i < end; i++) {
        int64_t n = tni_lines_at(l, i, at);
        if (halve) TNI_T(halve)((uint16_t *)c->out[0].data + at[0], TNI_IN(0) + at[1], n);
        else TNI_T(widen)(TNI_OUT(0) + at[0], (const uint16_t *)c->in[0].data + at[1], n);
    }
}

/* ---- passes over BF16 operands ------------------------------------------ >>pass-bf16
   A task widens a few rows of its operands into scratch that stays in the cache, runs the task of F32 on them and rounds
   their results. The bits are those of F32 copies (>>dispatch-bf16), but only BF16 is read from memory and written to it. */
typedef struct TNI_T(rows) {
    tni_pass   pass;                    /* comes first */
    tn_task_fn fn;                      /* the task of F32 */
    int64_t    few, sums;               /* rows at a time; numbers of a task's sums over rows */
    char      *scratch;
    size_t     each;                    /* bytes of it per worker */
    int64_t    wide[TN_CALL_IN + TN_CALL_OUT];          /* numbers of a row of each operand; 0: it has no row per item */
} TNI_T(rows);

TNI_INLINE float TNI_T(element)(const tn_view *v, int64_t i)
{
    return v->dtype == TN_BF16 ? tni_bf16_value(((const uint16_t *)v->data)[i]) : ((const float *)v->data)[i];
}

TNI_FAST void TNI_T(rows_task)(void *arg, int64_t task, int worker)
{
    const TNI_T(rows) *w = (const TNI_T(rows) *)arg;
    const tn_call     *c = w->pass.call;
    const int64_t      end = tni_pass_end(&w->pass, task);
    tn_call            some = *c;
    tni_pass           p = w->pass;
    p.call = &some;
    if (w->sums) {
        p.sums = (float *)(void *)w->pass.cpu->blocks + task * w->sums;
        memset(p.sums, 0, sizeof *p.sums * (size_t)w->sums);
    }
    for (int64_t r = tni_pass_begin(&w->pass, task); r < end; r += p.n) {
        float *to = (float *)(void *)(w->scratch + (size_t)worker * w->each);
        p.n = p.share = tni_min(w->few, end - r);
        for (int64_t k = 0; k < c->n_in + c->n_out; k++) {
            const bool     is_in = k < c->n_in;
            const tn_view *from = is_in ? &c->in[k] : &c->out[k - c->n_in];
            tn_view       *v = is_in ? &some.in[k] : &some.out[k - c->n_in];
            if (!from->data || w->wide[k] == 0) continue;
            v->data = (char *)from->data + (size_t)(r * w->wide[k]) * tni_dtype_size(from->dtype);
            if (from->dtype != TN_BF16) continue;
            if (is_in || tni_call_adds(c, (int)(k - c->n_in))) TNI_T(widen)(to, (const uint16_t *)v->data, p.n * w->wide[k]);
            v->data = to;
            to += w->few * w->wide[k];
        }
        w->fn(&p, 0, worker);
        for (int64_t k = 0; k < c->n_out; k++)
            if (tni_is_bf16(&c->out[k]))
                TNI_T(halve)((uint16_t *)c->out[k].data + r * w->wide[c->n_in + k], (const float *)some.out[k].data,
                             p.n * w->wide[c->n_in + k]);
    }
}

/* tni_pass_run for a task whose operands are F32, or some of them BF16. `sums`: numbers of a task's sums over rows. Returns
   the number of tasks; -1: no memory for the scratch. */
TNI_FAST int64_t TNI_T(rows_run)(tni_pass *p, int64_t n, int64_t width, int64_t most, int64_t sums, tn_task_fn fn)
{
    const tn_call *c = p->call;
    TNI_T(rows)    w;
    int64_t        numbers = 0;
    size_t         bytes;
    if (!tni_call_has_bf16(c)) return tni_pass_run(p, n, width, most, fn);
    w.pass = *p;
    w.fn = fn;
    w.sums = sums;
    for (int64_t k = 0; k < c->n_in + c->n_out; k++) {
        const tn_view *v = k < c->n_in ? &c->in[k] : &c->out[k - c->n_in];
        w.wide[k] = tni_rows_of(c, (int)k) ? (v->rank > 1 ? v->shape[1] : 1) : 0;
        numbers += w.wide[k];
    }
    w.few = tni_max(TNI_CPU_ROWS / tni_max(numbers, 1), 1);
    if (!tni_area_size(w.few, numbers, sizeof(float), &w.each) || !tni_add_size(w.each, 64, &w.each)) return -1;
    w.each = w.each / 64 * 64;
    if (!tni_mul_size((size_t)p->cpu->pool.threads, w.each, &bytes)) return -1;
    w.scratch = tni_cpu_scratch(p->cpu, bytes);
    return w.scratch ? tni_pass_run(&w.pass, n, width, most, TNI_T(rows_task)) : -1;
}

/* A call that the reference computes, which has no BF16 */
TNI_FAST tn_status TNI_T(rarely)(tni_cpu *cpu, const tn_call *c)
{
    return tni_call_has_bf16(c) ? TN_ERR_DTYPE : tni_reference_run(cpu, c);
}

/* ---- add, mul, div: along lines whose step is 1, or 0 where broadcast -------- >>pass-add */
TNI_INLINE TNI_V TNI_T(along)(const float *p, int64_t step, int64_t i, int k)
{
    return step == 0 ? TNI_SET(*p) : TNI_LOAD(p + i, k);
}

TNI_INLINE void TNI_T(add_line)(const tn_call *c, float *y, const float *a, int64_t a_step, const float *b, int64_t b_step,
                                int64_t n)
{
    const TNI_V f0 = TNI_SET((float)c->f[0]), f1 = TNI_SET((float)c->f[1]);
    for (int64_t i = 0; i < n; i += TNI_W) {
        int   k = TNI_T(lanes)(n - i);
        TNI_V v = f0 * TNI_T(along)(a, a_step, i, k);
        if (b) v = TNI_FMA(f1, TNI_T(along)(b, b_step, i, k), v);
        if (c->accumulate) v = v + TNI_LOAD(y + i, k);
        TNI_STORE(y + i, v, k);
    }
}

TNI_INLINE void TNI_T(mul_line)(const tn_call *c, float *y, const float *a, int64_t a_step, const float *b, int64_t b_step,
                                int64_t n)
{
    const TNI_V f0 = TNI_SET((float)c->f[0]);
    for (int64_t i = 0; i < n; i += TNI_W) {
        int   k = TNI_T(lanes)(n - i);
        TNI_V v = f0 * TNI_T(along)(a, a_step, i, k) * TNI_T(along)(b, b_step, i, k);
        if (c->accumulate) v = v + TNI_LOAD(y + i, k);
        TNI_STORE(y + i, v, k);
    }
}

TNI_INLINE void TNI_T(div_line)(const tn_call *c, float *y, const float *a, int64_t a_step, const float *b, int64_t b_step,
                                int64_t n)
{
    const TNI_V f0 = TNI_SET((float)c->f[0]);
    for (int64_t i = 0; i < n; i += TNI_W) {
        int   k = TNI_T(lanes)(n - i);
        TNI_V v = f0 * TNI_T(along)(a, a_step, i, k) / TNI_T(along)(b, b_step, i, k);
        if (c->accumulate) v = v + TNI_LOAD(y + i, k);
        TNI_STORE(y + i, v, k);
    }
}

TNI_FAST void TNI_T(binary_line)(const tn_call *c, float *y, const float *a, int64_t a_step, const float *b, int64_t b_step,
                                 int64_t n)
{
    if (c->kernel == TN_KERNEL_ADD) TNI_T(add_line)(c, y, a, a_step, b, b_step, n);
    else if (c->kernel == TN_KERNEL_MUL) TNI_T(mul_line)(c, y, a, a_step, b, b_step, n);
    else TNI_T(div_line)(c, y, a, a_step, b, b_step, n);
}

TNI_FAST void TNI_T(binary_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const tni_lines *l = &((const tni_line_pass *)arg)->lines;
    int64_t          at[3];
    for (int64_t index = begin; index < end; index++) {
        int64_t n = tni_lines_at(l, index, at);
        TNI_T(binary_line)(c, TNI_OUT(0) + at[0], TNI_IN(0) + at[1], l->step[1], c->n_in > 1 ? TNI_IN(1) + at[2] : NULL,
                           l->step[2], n);
    }
}

/* Elements from `at` of an operand: in place, or widened into `scratch` if they are BF16. step: 1, or 0 of a single number */
TNI_INLINE const float *TNI_T(some)(const tn_view *v, int64_t at, int64_t step, int64_t n, float *scratch)
{
    if (v->dtype != TN_BF16) return (const float *)v->data + at;
    TNI_T(widen)(scratch, (const uint16_t *)v->data + at, step == 0 ? 1 : n);
    return scratch;
}

/* The same with operands that may be BF16, some of a line at a time */
TNI_FAST void TNI_T(binary_bf16_task)(void *arg, int64_t task, int worker)
{
    enum { SOME = 1024 };
    TNI_PASS_OF(arg);
    const tni_lines *l = &((const tni_line_pass *)arg)->lines;
    const tn_view   *y = &c->out[0];
    float            a[SOME], b[SOME], to[SOME];
    int64_t          at[3], k;
    for (int64_t index = begin; index < end; index++) {
        int64_t n = tni_lines_at(l, index, at);
        for (int64_t i = 0; i < n; i += k) {
            const int64_t at_a = at[1] + i * l->step[1], at_b = at[2] + i * l->step[2];
            k = tni_min(SOME, n - i);
            if (c->accumulate) TNI_T(some)(y, at[0] + i, 1, k, to);
            TNI_T(binary_line)(c, y->dtype == TN_BF16 ? to : (float *)y->data + at[0] + i,
                               TNI_T(some)(&c->in[0], at_a, l->step[1], k, a), l->step[1],
                               c->n_in > 1 ? TNI_T(some)(&c->in[1], at_b, l->step[2], k, b) : NULL, l->step[2], k);
            if (y->dtype == TN_BF16) TNI_T(halve)((uint16_t *)y->data + at[0] + i, to, k);
        }
    }
}

TNI_FAST tn_status TNI_T(binary_run)(tni_cpu *cpu, const tn_call *c)
{
    tni_lines l = tni_lines_of(&c->out[0], &c->in[0], c->n_in > 1 ? &c->in[1] : NULL);
    if (l.length > 1 && (l.step[0] != 1 || (uint64_t)l.step[1] > 1 || (uint64_t)l.step[2] > 1)) return TNI_T(rarely)(cpu, c);
    return tni_line_pass_run(cpu, c, &l, tni_call_has_bf16(c) ? TNI_T(binary_bf16_task) : TNI_T(binary_task));
}

/* ---- sum: of everything, of each row, or of each column ----------------- >>pass-sum */
TNI_NOINLINE TNI_FAST double TNI_T(sum_of)(const float *x, int64_t n)
{
    TNI_T(wide) t = TNI_T(wide_zero)(), other = t;          /* an addition waits for the one before it */
    int64_t     i;
    for (i = 0; i + 2 * TNI_W <= n; i += 2 * TNI_W) {
        TNI_T(wide_add)(&t, TNI_LOAD(x + i, TNI_W));
        TNI_T(wide_add)(&other, TNI_LOAD(x + i + TNI_W, TNI_W));
    }
    for (; i < n; i += TNI_W) TNI_T(wide_add)(&t, TNI_LOAD(x + i, TNI_T(lanes)(n - i)));
    t.low = t.low + other.low;
    t.high = t.high + other.high;
    return TNI_T(wide_sum)(&t);
}

TNI_INLINE void TNI_T(sum_store)(const tn_call *c, int64_t i, double sum)
{
    float *y = TNI_OUT(0) + i;
    *y = (float)(c->f[0] * sum + (c->accumulate ? (double)*y : 0));
}

TNI_FAST void TNI_T(sum_all_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    p->cpu->part[task] = TNI_T(sum_of)(TNI_IN(0) + begin, end - begin);
}

TNI_FAST void TNI_T(sum_rows_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const tni_lines *l = &((const tni_line_pass *)arg)->lines;
    for (int64_t r = begin; r < end; r++)
        TNI_T(sum_store)(c, r * l->strides[0][0], TNI_T(sum_of)(TNI_IN(0) + r * l->strides[1][0], l->length));
}

/* Item: a strip of two vectors, over all rows. */
TNI_FAST void TNI_T(sum_columns_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const tni_lines *l = &((const tni_line_pass *)arg)->lines;
    const float     *x;
    int64_t          r, rows = l->shape[0];
    double           lane[2 * TNI_W];
    for (int64_t strip = begin; strip < end; strip++) {
        int64_t      at = strip * 2 * TNI_W, left = tni_min(2 * TNI_W, l->length - at);
        int          k = TNI_T(lanes)(left), k2 = (int)left - k;
        TNI_T(wide) a = TNI_T(wide_zero)(), b = a;
        for (r = 0, x = TNI_IN(0) + at; r < rows; r++, x += l->strides[1][0]) {
#if TNI_LEVEL > 0                       /* a step to the next row is too long for the processor's own prefetching */
            TNI_REQUEST(x, 8 * l->strides[1][0], 1);
            if (k2 > 0) TNI_REQUEST(x, 8 * l->strides[1][0] + TNI_W, 1);
#endif
            TNI_T(wide_add)(&a, TNI_LOAD(x, k));
            if (k2 > 0) TNI_T(wide_add)(&b, TNI_LOAD(x + TNI_W, k2));
        }
        memcpy(lane, &a, sizeof(double) * (size_t)TNI_W);
        memcpy(lane + TNI_W, &b, sizeof(double) * (size_t)TNI_W);
        for (int i = 0; i < left; i++) TNI_T(sum_store)(c, at + i, lane[i]);
    }
}

TNI_FAST tn_status TNI_T(sum_run)(tni_cpu *cpu, const tn_call *c)
{
    tn_view       at = c->out[0], x = c->in[0];
    tni_line_pass p;
    tni_lines    *l = &p.lines;
    for (int i = 0; i < x.rank; i++)
        if (at.shape[i] != x.shape[i]) { at.shape[i] = x.shape[i]; at.strides[i] = 0; }
    *l = tni_lines_of(&at, &x, NULL);
    p.pass.cpu = cpu;
    p.pass.call = c;
    if (l->count == 0 || l->rank > 1 || l->step[1] != 1) return tni_reference_run(cpu, c);
    if (l->rank == 0 && l->step[0] == 0) {
        int64_t parts = tni_pass_run(&p.pass, l->length, 1, TNI_CPU_PARTS, TNI_T(sum_all_task));
        TNI_T(sum_store)(c, 0, tni_parts_sum(cpu, parts));
    } else if (l->rank == 1 && l->step[0] == 0 && l->strides[0][0] != 0)
        tni_pass_run(&p.pass, l->shape[0], l->length, INT64_MAX, TNI_T(sum_rows_task));
    else if (l->rank == 1 && l->strides[0][0] == 0 && l->step[0] == 1)
        tni_pass_run(&p.pass, tni_ceil_div(l->length, 2 * TNI_W), 2 * TNI_W * l->shape[0], INT64_MAX,
                     TNI_T(sum_columns_task));
    else return tni_reference_run(cpu, c);
    return TN_OK;
}

#endif
