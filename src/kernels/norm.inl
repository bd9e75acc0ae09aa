#if TNI_BITS == 32
/* ---- rmsnorm, see >>op-rmsnorm ------------------------------------------ >>pass-rmsnorm */
/* The sum of squares of n numbers. Two vectors at a time, because an addition waits for the one before it. */
TNI_NOINLINE TNI_FAST double TNI_T(squares_of)(const float *x, int64_t n)
{
    TNI_T(wide) sum = TNI_T(wide_zero)(), other = sum;
    int64_t     i;
    for (i = 0; i + 2 * TNI_W <= n; i += 2 * TNI_W) {
        const TNI_V a = TNI_LOAD(x + i, TNI_W), b = TNI_LOAD(x + i + TNI_W, TNI_W);
        TNI_T(wide_add_product)(&sum, a, a);
        TNI_T(wide_add_product)(&other, b, b);
    }
    for (; i < n; i += TNI_W) {
        const TNI_V a = TNI_LOAD(x + i, TNI_T(lanes)(n - i));
        TNI_T(wide_add_product)(&sum, a, a);
    }
    sum.low = sum.low + other.low;
    sum.high = sum.high + other.high;
    return TNI_T(wide_sum)(&sum);
}

/* y of one row; returns its r. */
TNI_NOINLINE TNI_FAST float TNI_T(rmsnorm_of)(const float *x, const float *w, double eps, int64_t C, float *y)
{
    float scale = (float)(1 / sqrt(TNI_T(squares_of)(x, C) / (double)C + eps));
    const TNI_V s = TNI_SET(scale);
    int64_t     i;
#define TNI_STEP(k) TNI_STORE(y + i, w ? TNI_LOAD(x + i, k) * s * TNI_LOAD(w + i, k) : TNI_LOAD(x + i, k) * s, k);
    for (i = 0; i + TNI_W <= C; i += TNI_W) TNI_STEP(TNI_W)
    if (i < C) TNI_STEP((int)(C - i))
#undef TNI_STEP
    return scale;
}

TNI_FAST void TNI_T(rmsnorm_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t C = c->out[0].shape[1];
    for (int64_t r = begin; r < end; r++)
        TNI_OUT(1)[r] = TNI_T(rmsnorm_of)(TNI_IN(0) + r * C, TNI_IN(1), c->f[0], C, TNI_OUT(0) + r * C);
}

/* A BF16 sum is rounded before it is normalised, by way of the row of y, which is written afterwards. */
TNI_FAST void TNI_T(residual_rmsnorm_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t C = c->out[0].shape[1];
    for (int64_t r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * C, *branch = TNI_IN(1) + r * C;
        float       *s = TNI_OUT(0) + r * C, *y = TNI_OUT(1) + r * C;
        for (int64_t i = 0; i < C; i += TNI_W) {
            int k = TNI_T(lanes)(C - i);
            TNI_STORE(s + i, TNI_LOAD(x + i, k) + TNI_LOAD(branch + i, k), k);
        }
        if (c->out[0].dtype == TN_BF16) {
            TNI_T(halve)((uint16_t *)(void *)y, s, C);
            TNI_T(widen)(s, (const uint16_t *)(const void *)y, C);
        }
        TNI_OUT(2)[r] = TNI_T(rmsnorm_of)(s, TNI_IN(2), c->f[0], C, y);
    }
}

/* to[C] += the sum of the tasks' shares, which lie `stride` apart. */
TNI_FAST void TNI_T(add_parts)(float *to, const float *part, int64_t parts, int64_t stride, int64_t C)
{
    for (int64_t i = 0; i < C; i += TNI_W) {
        int   k = TNI_T(lanes)(C - i);
        TNI_V sum = TNI_SET(0.0f);
        for (int64_t q = 0; q < parts; q++) sum = sum + TNI_LOAD(part + q * stride + i, k);
        TNI_STORE(to + i, TNI_LOAD(to + i, k) + sum, k);
    }
}

/* Whether all x * dy, or all x * dy * w, of a row are below the normal range of float, but not zero. They are seen through
   x * scale * dy, which is in that range where dx and dw are. */
TNI_INLINE bool TNI_T(rmsnorm_is_tiny)(const float *x, const float *dy, const float *w, float scale, int64_t C)
{
    const float most = 1e-37f * scale;
    const TNI_V s = TNI_SET(scale);
    TNI_V       top = TNI_SET(0.0f), top_w = top;
    float       lane[TNI_W], lane_w[TNI_W], a = 0, b = 0;
    for (int64_t i = 0; i < C; i += TNI_W) {
        int   k = TNI_T(lanes)(C - i);
        TNI_V d = TNI_LOAD(x + i, k) * s * TNI_LOAD(dy + i, k);
        top = TNI_MAX(top, TNI_ABS(d));
        if (w) top_w = TNI_MAX(top_w, TNI_ABS(d * TNI_LOAD(w + i, k)));
    }
    TNI_STORE(lane, top, TNI_W);
    TNI_STORE(lane_w, top_w, TNI_W);
    for (int64_t i = 0; i < TNI_W; i++) {
        if (lane[i] > a) a = lane[i];
        if (lane_w[i] > b) b = lane_w[i];
    }
    return (a > 0 && a < most) || (b > 0 && b < most);
}

/* One row: dx, and its share of dw. scale^3 and x * dy may leave the range of float, above or below, if x or dy is far from
   1: for such a row dx comes from the reference, in double, and dw from x * scale. A mean product below 1e-30 is looked at
   more closely: single products lose digits below 1e-38, and no gain is expected to be above 1e7. */
TNI_INLINE void TNI_T(rmsnorm_row)(const tn_call *c, int64_t r, int64_t C, float *dw)
{
    const float *x = TNI_IN(0) + r * C, *w = TNI_IN(1), *dy = TNI_IN(3) + r * C;
    float       *dx = TNI_OUT(0) ? TNI_OUT(0) + r * C : NULL;
    const TNI_V  scale = TNI_SET(TNI_IN(2)[r]);
    double       s = (double)TNI_IN(2)[r];
    TNI_T(wide)  dot = TNI_T(wide_zero)();
    int64_t      i;
#define TNI_STEP(i, k) (w ? TNI_LOAD(x + (i), k) * TNI_LOAD(dy + (i), k) * TNI_LOAD(w + (i), k) \
                          : TNI_LOAD(x + (i), k) * TNI_LOAD(dy + (i), k))
    for (i = 0; i + 4 * TNI_W <= C; i += 4 * TNI_W)         /* four of these rounded numbers are added in float */
        TNI_T(wide_add)(&dot, (TNI_STEP(i, TNI_W) + TNI_STEP(i + TNI_W, TNI_W))
                              + (TNI_STEP(i + 2 * TNI_W, TNI_W) + TNI_STEP(i + 3 * TNI_W, TNI_W)));
    for (; i < C; i += TNI_W) TNI_T(wide_add)(&dot, TNI_STEP(i, TNI_T(lanes)(C - i)));
#undef TNI_STEP
    double sum = TNI_T(wide_sum)(&dot), factor = -s * s * s * sum / (double)C;
    if (!(s > 1e-6 && s < 1e6) || !(fabs(factor) <= 3.4e38) || (factor != 0 && fabs(factor) < 1.2e-38)      /* a NaN, too */
        || (fabs(sum) < 1e-30 * (double)C && TNI_T(rmsnorm_is_tiny)(x, dy, w, TNI_IN(2)[r], C))) {
        for (i = 0; dw && i < C; i += TNI_W) {
            int k = TNI_T(lanes)(C - i);
            TNI_STORE(dw + i, TNI_FMA(TNI_LOAD(x + i, k) * scale, TNI_LOAD(dy + i, k), TNI_LOAD(dw + i, k)), k);
        }
        if (dx) tni_f32_rmsnorm_dx(c, r);
        return;
    }
    const TNI_V mean = TNI_SET((float)factor);
    const bool  add = dx && c->accumulate;
#define TNI_STEP(k) { \
        TNI_V v = TNI_LOAD(x + i, k), d = TNI_LOAD(dy + i, k); \
        if (dw) TNI_STORE(dw + i, TNI_FMA(v * d, scale, TNI_LOAD(dw + i, k)), k); \
        d = d * scale; \
        if (w) d = d * TNI_LOAD(w + i, k); \
        d = TNI_FMA(v, mean, d); \
        if (add) d = d + TNI_LOAD(dx + i, k); \
        if (dx) TNI_STORE(dx + i, d, k); }
    for (i = 0; i + TNI_W <= C; i += TNI_W) TNI_STEP(TNI_W)
    if (i < C) TNI_STEP((int)(C - i))
#undef TNI_STEP
}

/* Every task sums dw over its own rows. */
TNI_FAST void TNI_T(rmsnorm_backward_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t C = c->in[0].shape[1];
    float  *dw = c->n_out < 2 || !TNI_OUT(1) ? NULL : p->sums ? p->sums : (float *)(void *)p->cpu->blocks + task * C;
    if (dw && !p->sums) memset(dw, 0, sizeof *dw * (size_t)C);
    for (int64_t r = begin; r < end; r++) TNI_T(rmsnorm_row)(c, r, C, dw);
}

TNI_FAST tn_status TNI_T(rmsnorm_backward_run)(tni_cpu *cpu, const tn_call *c)
{
    const int64_t most = 16, C = c->in[0].shape[1];
    tni_pass      p;
    float        *dw = c->n_out > 1 ? TNI_OUT(1) : NULL;
    if (C > 2 * TNI_GEMM_LARGE / (most * (int64_t)sizeof *dw)) return TNI_T(rarely)(cpu, c);
    p.cpu = cpu;
    p.call = c;
    int64_t parts = TNI_T(rows_run)(&p, c->in[0].shape[0], C, most, dw ? C : 0, TNI_T(rmsnorm_backward_task));
    if (parts < 0) return TN_ERR_MEMORY;
    if (dw) TNI_T(add_parts)(dw, (const float *)(void *)cpu->blocks, parts, C, C);
    return TN_OK;
}

/* ---- layernorm, see >>op-layernorm -------------------------------------- >>pass-layernorm
   The mean is a float and its rounding error, so that a row far from zero keeps its digits. */
TNI_INLINE TNI_V TNI_T(row_mean)(const float *x, int64_t C, TNI_V *lost)
{
    double mean = TNI_T(sum_of)(x, C) / (double)C;
    *lost = TNI_SET((float)(mean - (double)(float)mean));
    return TNI_SET((float)mean);
}

TNI_FAST void TNI_T(layernorm_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const float *w = TNI_IN(1), *b = TNI_IN(2);
    int64_t      C = c->out[0].shape[1];
    for (int64_t r = begin; r < end; r++) {
        const float *x = TNI_IN(0) + r * C;
        float       *y = TNI_OUT(0) + r * C;
        TNI_T(wide) squares = TNI_T(wide_zero)();
        TNI_V        lost, mean = TNI_T(row_mean)(x, C, &lost);
        for (int64_t i = 0; i < C; i += TNI_W) {
            int   k = TNI_T(lanes)(C - i);
            TNI_V v = TNI_LOAD(x + i, k) - mean - lost;
            TNI_STORE(y + i, v, k);
            if (k < TNI_W) v = TNI_LOAD(y + i, k);      /* lanes after the row count zero */
            TNI_T(wide_add_product)(&squares, v, v);
        }
        double scale = 1 / sqrt(TNI_T(wide_sum)(&squares) / (double)C + c->f[0]);
        TNI_OUT(1)[r] = (float)scale;
        TNI_V s = TNI_SET((float)scale);
        for (int64_t i = 0; i < C; i += TNI_W) {
            int   k = TNI_T(lanes)(C - i);
            TNI_V v = TNI_LOAD(y + i, k) * s;
            if (w) v = v * TNI_LOAD(w + i, k);
            if (b) v = v + TNI_LOAD(b + i, k);
            TNI_STORE(y + i, v, k);
        }
    }
}

/* One row: dx, and its share of dw and db. */
TNI_INLINE void TNI_T(layernorm_row)(const tn_call *c, int64_t r, int64_t C, float *dw, float *db)
{
    const float *x = TNI_IN(0) + r * C, *w = TNI_IN(1), *dy = TNI_IN(3) + r * C;
    float       *dx = TNI_OUT(0) ? TNI_OUT(0) + r * C : NULL;
    const TNI_V  scale = TNI_SET(TNI_IN(2)[r]);
    TNI_T(wide) sum = TNI_T(wide_zero)(), dot = sum;
    TNI_V        lost, mean = TNI_T(row_mean)(x, C, &lost);
    for (int64_t i = 0; i < C; i += TNI_W) {
        int   k = TNI_T(lanes)(C - i);
        TNI_V d = TNI_LOAD(dy + i, k), z = (TNI_LOAD(x + i, k) - mean - lost) * scale;
        if (db) TNI_STORE(db + i, d + TNI_LOAD(db + i, k), k);
        if (dw) TNI_STORE(dw + i, TNI_FMA(d, z, TNI_LOAD(dw + i, k)), k);
        if (w) d = d * TNI_LOAD(w + i, k);
        TNI_T(wide_add)(&sum, d);
        TNI_T(wide_add_product)(&dot, d, z);
    }
    TNI_V mean_g = TNI_SET((float)(TNI_T(wide_sum)(&sum) / (double)C));
    TNI_V slope = TNI_SET((float)(-TNI_T(wide_sum)(&dot) / (double)C));
    for (int64_t i = 0; dx && i < C; i += TNI_W) {
        int   k = TNI_T(lanes)(C - i);
        TNI_V d = TNI_LOAD(dy + i, k), z = (TNI_LOAD(x + i, k) - mean - lost) * scale;
        if (w) d = d * TNI_LOAD(w + i, k);
        d = TNI_FMA(z, slope, d - mean_g) * scale;
        if (c->accumulate) d = d + TNI_LOAD(dx + i, k);
        TNI_STORE(dx + i, d, k);
    }
}

/* Every task sums dw, then db, over its own rows. */
TNI_FAST void TNI_T(layernorm_backward_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    int64_t C = c->in[0].shape[1];
    float  *part = p->sums ? p->sums : (float *)(void *)p->cpu->blocks + task * 2 * C;
    if (!p->sums) memset(part, 0, sizeof *part * 2 * (size_t)C);
    for (int64_t r = begin; r < end; r++) TNI_T(layernorm_row)(c, r, C, TNI_OUT(1) ? part : NULL, TNI_OUT(2) ? part + C : NULL);
}

TNI_FAST tn_status TNI_T(layernorm_backward_run)(tni_cpu *cpu, const tn_call *c)
{
    const int64_t most = 16, C = c->in[0].shape[1];
    tni_pass      p;
    if (C > 2 * TNI_GEMM_LARGE / (most * 2 * (int64_t)sizeof(float))) return TNI_T(rarely)(cpu, c);
    p.cpu = cpu;
    p.call = c;
    int64_t parts = TNI_T(rows_run)(&p, c->in[0].shape[0], C, most, 2 * C, TNI_T(layernorm_backward_task));
    if (parts < 0) return TN_ERR_MEMORY;
    for (int64_t which = 0; which < 2; which++) {
        const float *part = (const float *)(void *)cpu->blocks + which * C;
        if (TNI_OUT(1 + which)) TNI_T(add_parts)(TNI_OUT(1 + which), part, parts, 2 * C, C);
    }
    return TN_OK;
}

/* ---- cross_entropy, see >>op-cross_entropy ------------------------------ >>pass-cross_entropy */
/* One row: e^(z-top) is stored in dz, if given, until the sum is known. Returns the log-sum-exp. */
TNI_INLINE double TNI_T(cross_entropy_row)(const float *z, float *dz, int64_t C, double share)
{
    float       lane[TNI_W], most;
    TNI_V       top = TNI_SET(z[0]);
    TNI_T(wide) sum = TNI_T(wide_zero)();
    int64_t     i;
    for (i = 0; i + TNI_W <= C; i += TNI_W) top = TNI_MAX(top, TNI_LOAD(z + i, TNI_W));
    TNI_STORE(lane, top, TNI_W);
    for (most = lane[0]; i < C; i++) most = z[i] > most ? z[i] : most;
    for (i = 1; i < TNI_W; i++) most = lane[i] > most ? lane[i] : most;
    top = TNI_SET(most);
    for (i = 0; i + TNI_W <= C;) {                        /* at most eight are added in float, all in [0,1] */
        const int64_t end = tni_min(i + 8 * TNI_W, C - TNI_W + 1);
        TNI_V         some = TNI_SET(0.0f);
        for (; i < end; i += TNI_W) {
            TNI_V e = TNI_T(exp_below)(TNI_LOAD(z + i, TNI_W) - top);
            if (dz) TNI_STORE(dz + i, e, TNI_W);
            some = some + e;
        }
        TNI_T(wide_add)(&sum, some);
    }
    if (i < C) {
        int k = (int)(C - i);
        TNI_STORE(lane, TNI_T(exp_below)(TNI_LOAD(z + i, k) - top), TNI_W);
        TNI_T(wide_add)(&sum, TNI_LOAD(lane, k));
        if (dz) memcpy(dz + i, lane, sizeof *dz * (size_t)k);
    }
    double total = TNI_T(wide_sum)(&sum);
    TNI_V  scale = TNI_SET((float)(share / total));
    for (i = 0; dz && i < C; i += TNI_W) {
        int k = TNI_T(lanes)(C - i);
        TNI_STORE(dz + i, TNI_LOAD(dz + i, k) * scale, k);
    }
    return (double)most + log(total);
}

TNI_FAST void TNI_T(cross_entropy_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const int32_t *label = (const int32_t *)c->in[1].data;
    const int64_t  C = c->in[0].shape[1];
    const double   share = c->f[0];
    float         *dz = c->n_out > 3 ? TNI_OUT(3) : NULL;
    for (int64_t r = begin; r < end; r++) {
        const bool good = label[r] >= 0 && label[r] < C && !tni_is_ignored(c, label[r]);
        TNI_OUT(1)[r] = (float)TNI_T(cross_entropy_row)(TNI_IN(0) + r * C, dz && good ? dz + r * C : NULL, C, share);
        if (dz && good) dz[r * C + label[r]] -= (float)share;
        else if (dz) memset(dz + r * C, 0, sizeof *dz * (size_t)C);
    }
}

TNI_FAST tn_status TNI_T(cross_entropy_run)(tni_cpu *cpu, const tn_call *c)
{
    const int32_t *label = (const int32_t *)c->in[1].data;
    int64_t        R = c->in[0].shape[0], C = c->in[0].shape[1];
    double         loss = 0, count = (double)tni_max(tni_rows_counted(c), 1);
    tn_call        shared = *c;
    tni_pass       p;
    p.cpu = cpu;
    p.call = &shared;
    shared.f[0] = 1 / count;
    if (TNI_T(rows_run)(&p, R, C, INT64_MAX, 0, TNI_T(cross_entropy_task)) < 0) return TN_ERR_MEMORY;
    for (int64_t r = 0; r < R; r++) {
        const bool ignored = tni_is_ignored(c, label[r]);
        if (!ignored && label[r] >= 0 && label[r] < C)
            loss += (double)TNI_OUT(1)[r] - (double)TNI_T(element)(&c->in[0], r * C + label[r]);
        else if (!ignored) tni_fault(&c->out[2], 1, r, label[r], 2);
    }
    *TNI_OUT(0) = (float)(loss / count);
    return TN_OK;
}

/* ---- softmax, see >>op-softmax: y holds e^(x-m) until the sum is known ---- >>pass-softmax */
TNI_INLINE void TNI_T(softmax_row)(const float *x, float *y, int64_t C, bool log_of)
{
    float       lane[TNI_W], most = -(float)HUGE_VAL;
    TNI_V       top = TNI_SET(most);
    TNI_T(wide) sum = TNI_T(wide_zero)();
    int64_t     i;
    for (i = 0; i + TNI_W <= C; i += TNI_W) top = TNI_MAX(top, TNI_LOAD(x + i, TNI_W));
    TNI_STORE(lane, top, TNI_W);
    for (; i < C; i++) most = x[i] > most ? x[i] : most;
    for (i = 0; i < TNI_W; i++) most = lane[i] > most ? lane[i] : most;
    if (most == -(float)HUGE_VAL) most = 0;
    top = TNI_SET(most);
    for (i = 0; i < C; i += TNI_W) {
        int   k = TNI_T(lanes)(C - i);
        TNI_V e = TNI_T(exp_below)(TNI_LOAD(x + i, k) - top);
        if (!log_of) TNI_STORE(y + i, e, k);
        if (k < TNI_W) {                                    /* lanes after the row count zero */
            TNI_STORE(lane, e, TNI_W);
            e = TNI_LOAD(lane, k);
        }
        TNI_T(wide_add)(&sum, e);
    }
    double total = TNI_T(wide_sum)(&sum);
    TNI_V  scale = TNI_SET((float)(log_of ? log(total) : total == 0 ? 0 : 1 / total));
    for (i = 0; i < C; i += TNI_W) {
        int   k = TNI_T(lanes)(C - i);
        TNI_V v = log_of ? TNI_LOAD(x + i, k) - top - scale : TNI_LOAD(y + i, k) * scale;
        if (log_of && total == 0) v = TNI_SET(-(float)HUGE_VAL);
        TNI_STORE(y + i, v, k);
    }
}

TNI_FAST void TNI_T(softmax_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const int64_t C = c->in[0].shape[1];
    for (int64_t r = begin; r < end; r++) TNI_T(softmax_row)(TNI_IN(0) + r * C, TNI_OUT(0) + r * C, C, c->i[0] != 0);
}

#ifndef TN_NO_TRAINING
TNI_FAST void TNI_T(softmax_backward_task)(void *arg, int64_t task, int worker)
{
    TNI_PASS_OF(arg);
    const int64_t C = c->in[0].shape[1];
    const bool    log_of = c->i[0] != 0, add = c->accumulate;
    for (int64_t r = begin; r < end; r++) {
        const float *y = TNI_IN(0) + r * C, *dy = TNI_IN(1) + r * C;
        float       *dx = TNI_OUT(0) + r * C;
        TNI_T(wide)  sum = TNI_T(wide_zero)();
        for (int64_t i = 0; i < C; i += TNI_W) {
            int   k = TNI_T(lanes)(C - i);
            TNI_V d = TNI_LOAD(dy + i, k);
            if (log_of) TNI_T(wide_add)(&sum, d);
            else TNI_T(wide_add_product)(&sum, d, TNI_LOAD(y + i, k));
        }
        TNI_V all = TNI_SET((float)TNI_T(wide_sum)(&sum));
        for (int64_t i = 0; i < C; i += TNI_W) {
            int   k = TNI_T(lanes)(C - i);
            TNI_V v = TNI_LOAD(y + i, k), d = TNI_LOAD(dy + i, k);
            v = log_of ? d - TNI_T(exp)(v) * all : v * (d - all);
            if (add) v = v + TNI_LOAD(dx + i, k);
            TNI_STORE(dx + i, v, k);
        }
    }
}
#endif

#endif
