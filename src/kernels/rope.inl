#if TNI_SEQUENCES
/* ---- rope, see >>op-rope ------------------------------------------------ >>pass-rope
   A task handles its positions in the whole batch, so that each angle is computed once. Positions that follow each other in
   memory are processed one after the other. */
typedef struct TNI_T(rope) { tni_pass pass; const double *rates; char *scratch; size_t each; } TNI_T(rope);

/* cosine[h], sine[h] of position t. rates: angles per position */
TNI_FAST void TNI_T(rope_angles)(const double *rates, double t, int64_t h, TNI_REAL *cosine, TNI_REAL *sine)
{
    int64_t k;
#if TNI_BITS == 32
    for (k = 0; k < h; k++) {
        const double turns = t * rates[k] * 0.15915494309189535;
        cosine[k] = (float)(turns - floor(turns));
    }
    for (k = 0; k < h; k += TNI_W) {
        const int        n = TNI_T(lanes)(h - k);
        TNI_T(direction) x, y;
        TNI_T(circle)(TNI_LOAD(cosine + k, n), &x, &y);
        TNI_STORE(cosine + k, TNI_FMA(x.factor, x.first, x.tail), n);
        TNI_STORE(sine + k, TNI_FMA(y.factor, y.first, y.tail), n);
    }
#else
    for (k = 0; k < h; k++) {
        cosine[k] = cos(t * rates[k]);
        sine[k] = sin(t * rates[k]);
    }
#endif
}

/* Row n of a position: in place, or in F32 in `scratch` */
TNI_INLINE TNI_REAL *TNI_T(rope_row)(const tn_view *x, int64_t b, int64_t t, int64_t n, TNI_REAL *scratch, bool read)
{
#if TNI_BITS == 32
    if (x->dtype == TN_BF16) {
        const uint16_t *from = (const uint16_t *)x->data + b * x->strides[0] + t * x->strides[1] + n * x->strides[2];
        if (read) TNI_T(widen)(scratch, from, x->shape[3]);
        return scratch;
    }
#endif
    (void)scratch;
    (void)read;
    return TNI_ROW(x, b, t, n);
}

/* 1/|x|, see >>op-rope */
TNI_INLINE double TNI_T(rope_length)(const tn_call *c, const TNI_REAL *x, int64_t d)
{
    TNI_V squares = TNI_SET(0);
    for (int64_t i = 0; i < d; i += TNI_W) {
        const TNI_V v = TNI_LOAD(x + i, TNI_T(lanes)(d - i));
        squares = TNI_FMA(v, v, squares);
    }
    return 1 / sqrt((double)TNI_T(lane_sum)(squares) / (double)d + c->f[1]);
}

/* y (+)= factor R x if `sign` is 1, factor R^T x if it is -1 */
TNI_FAST void TNI_T(rope_rotate)(const TNI_REAL *x, int64_t d, const TNI_REAL *cosine, const TNI_REAL *sine, TNI_REAL sign,
                                 TNI_REAL factor, bool add, TNI_REAL *y)
{
    const TNI_V   by = TNI_SET(factor), by_sine = TNI_SET(sign * factor);
    const int64_t h = d / 2;
    for (int64_t k = 0; k < h; k += TNI_W) {
        const int   n = TNI_T(lanes)(h - k);
        const TNI_V c = TNI_LOAD(cosine + k, n) * by, s = TNI_LOAD(sine + k, n) * by_sine;
        const TNI_V u = TNI_LOAD(x + k, n), v = TNI_LOAD(x + h + k, n);
        TNI_V       low = u * c - v * s, high = TNI_FMA(v, c, u * s);
        if (add) {
            low = low + TNI_LOAD(y + k, n);
            high = high + TNI_LOAD(y + h + k, n);
        }
        TNI_STORE(y + k, low, n);
        TNI_STORE(y + h + k, high, n);
    }
    if (d % 2) y[d - 1] = factor * x[d - 1] + (add ? y[d - 1] : 0);
}

/* dx (+)= norm (g - x norm^2 mean(g x)) with g in `rotated` */
TNI_FAST void TNI_T(rope_slope)(const tn_call *c, const TNI_REAL *x, const TNI_REAL *rotated, int64_t d, TNI_REAL *dx)
{
    const double norm = TNI_T(rope_length)(c, x, d);
    TNI_V        dot = TNI_SET(0), by = TNI_SET((TNI_REAL)norm);
    for (int64_t i = 0; i < d; i += TNI_W) {
        const int n = TNI_T(lanes)(d - i);
        dot = TNI_FMA(TNI_LOAD(x + i, n), TNI_LOAD(rotated + i, n), dot);
    }
    TNI_V mean = TNI_SET((TNI_REAL)(-norm * norm * norm * (double)TNI_T(lane_sum)(dot) / (double)d));
    for (int64_t i = 0; i < d; i += TNI_W) {
        const int n = TNI_T(lanes)(d - i);
        TNI_V     v = TNI_FMA(TNI_LOAD(x + i, n), mean, TNI_LOAD(rotated + i, n) * by);
        if (c->accumulate) v = v + TNI_LOAD(dx + i, n);
        TNI_STORE(dx + i, v, n);
    }
}

TNI_FAST void TNI_T(rope_task)(void *arg, int64_t task, int worker)
{
    const TNI_T(rope) *p = (const TNI_T(rope) *)arg;
    const tn_call     *c = p->pass.call;
    const tn_view     *x = &c->in[0], *y = &c->out[0];
    const bool         backward = c->kernel == TN_KERNEL_ROPE_BACKWARD, normed = c->f[1] >= 0;
    const int64_t      d = x->shape[3], h = d / 2, first = tni_pass_begin(&p->pass, task), end = tni_pass_end(&p->pass, task);
    TNI_REAL          *rotated = (TNI_REAL *)(void *)(p->scratch + (size_t)worker * p->each), *angles = rotated + d;
    TNI_REAL          *wide = angles + p->pass.share * d;                      /* of BF16 operands only */
    int64_t            t, b, n;
    for (t = first; t < end; t++) {
        TNI_REAL *cosine = angles + (t - first) * 2 * h, *sine = cosine + h;
        if (!c->i[1]) TNI_T(rope_angles)(p->rates, (double)(c->i[0] + t), h, cosine, sine);
        for (int64_t k = 0; c->i[1] && k < h; k++) {
            cosine[k] = 1;
            sine[k] = 0;
        }
    }
    for (b = 0; b < x->shape[0]; b++)
        for (t = first; t < end; t++) {
            const TNI_REAL *cosine = angles + (t - first) * 2 * h, *sine = cosine + h;
            for (n = 0; n < x->shape[2]; n++) {
                TNI_REAL       *to = TNI_T(rope_row)(y, b, t, n, wide, c->accumulate);
                const TNI_REAL *dy = backward ? TNI_T(rope_row)(&c->in[1], b, t, n, wide + d, true) : NULL;
                const TNI_REAL *from = !backward || normed ? TNI_T(rope_row)(x, b, t, n, wide + 2 * d, true) : NULL;
                if (!backward)
                    TNI_T(rope_rotate)(from, d, cosine, sine, 1, normed ? (TNI_REAL)TNI_T(rope_length)(c, from, d) : 1,
                                       false, to);
                else if (!normed)                           /* reads dy alone */
                    TNI_T(rope_rotate)(dy, d, cosine, sine, -1, 1, c->accumulate, to);
                else {
                    TNI_T(rope_rotate)(dy, d, cosine, sine, -1, 1, false, rotated);
                    TNI_T(rope_slope)(c, from, rotated, d, to);
                }
#if TNI_BITS == 32
                if (y->dtype == TN_BF16)
                    TNI_T(halve)((uint16_t *)y->data + b * y->strides[0] + t * y->strides[1] + n * y->strides[2], to, d);
#endif
            }
        }
}

/* A task takes positions of TNI_CPU_SHARE elements; where fewer than 16 positions have as many, a sixteenth of all
   positions, but at most 16. */
TNI_FAST tn_status TNI_T(rope_run)(tni_cpu *cpu, const tn_call *c)
{
    const int64_t d = c->in[0].shape[3], h = d / 2, positions = c->in[0].shape[1];
    const int64_t width = tni_max(c->in[0].shape[0] * c->in[0].shape[2] * d, 1);
    size_t        bytes, each;
    double       *rates;
    TNI_T(rope)   p;
    p.pass.cpu = cpu;
    p.pass.call = c;
    p.pass.n = positions;
    p.pass.share = tni_max(TNI_CPU_SHARE / width, tni_min(16, positions / 16));
    p.pass.share = tni_max(tni_min(p.pass.share, positions), 1);
    if (!tni_area_size(p.pass.share + (tni_call_has_bf16(c) ? 4 : 1), d, sizeof(TNI_REAL), &each)
        || !tni_add_size(each, 64, &each)) return TN_ERR_MEMORY;
    p.each = each / 64 * 64;
    if (!tni_mul_size((size_t)cpu->pool.threads, p.each, &bytes)
        || !tni_add_size(bytes, sizeof(double) * (size_t)(h + 1), &bytes)) return TN_ERR_MEMORY;
    p.scratch = tni_cpu_scratch(cpu, bytes);
    if (!p.scratch) return TN_ERR_MEMORY;
    p.rates = rates = (double *)(void *)(p.scratch + p.each * (size_t)cpu->pool.threads);
    for (int64_t k = 0; !c->i[1] && k < h; k++) rates[k] = tni_rope_rate(c, k, d);
    tni_parallel_for(positions <= TNI_CPU_ALONE / width ? &tni_alone : &cpu->pool, tni_ceil_div(positions, p.pass.share),
                     TNI_T(rope_task), &p);
    return TN_OK;
}

#endif
