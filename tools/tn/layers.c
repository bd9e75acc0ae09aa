/* layers.c - tn train --log-layers: what a step does to each parameter, and how widely each block attends, as a line of the
   log */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *numbers_of(const tn_tensor *t)
{
    double *v = (double *)allocate((size_t)tn_tensor_count(t), sizeof *v);
    tn_read(t, TN_F64, v, tn_tensor_count(t));
    return v;
}

/* The root of the mean square of v - w; w may be NULL. */
static double root_mean_square(const double *v, const double *w, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = v[i] - (w ? w[i] : 0);
        sum += d * d;
    }
    return n ? sqrt(sum / (double)n) : 0;
}

/* Of M^T M, with the squared singular values of M as its eigenvalues l: (sum l)^2 / sum l^2, between 1 and the smaller
   extent of M [rows,columns]. NaN where t is not a matrix. */
static double effective_rank(tn_ctx *ctx, tn_tensor *t)
{
    int64_t shape[2];
    if (t->rank < 2 || tn_tensor_count(t) == 0) return NAN;
    shape[1] = t->shape[t->rank - 1];
    shape[0] = tn_tensor_count(t) / shape[1];
    tn_tensor *m = tn_reshape(t, 2, shape);
    tn_tensor *gram = shape[0] < shape[1] ? tn_matmul(ctx, m, tn_transpose(m, 0, 1)) : tn_matmul(ctx, tn_transpose(m, 0, 1), m);
    double     trace = tn_item(tn_sum(ctx, tn_mul(ctx, m, m)));
    double     squares = tn_item(tn_sum(ctx, tn_mul(ctx, gram, gram)));
    return squares > 0 ? trace * trace / squares : 0;
}

/* The mean over rows of p [rows,n] of -sum_j w_j ln w_j, w_j = |p_j| / sum_k |p_k|. Rows of zeros do not count; NaN where
   there are no others. */
static double mean_entropy(const float *p, int64_t rows, int64_t n)
{
    double  all = 0;
    int64_t counted = 0;
    for (int64_t r = 0; r < rows; r++, p += n) {
        double sum = 0, entropy = 0;
        for (int64_t j = 0; j < n; j++) sum += fabs((double)p[j]);
        for (int64_t j = 0; j < n && sum > 0; j++) if (p[j] != 0)
            entropy -= fabs((double)p[j]) / sum * log(fabs((double)p[j]) / sum);
        all += entropy;
        counted += sum > 0;
    }
    return counted ? all / (double)counted : NAN;
}

enum { PATTERN_NUMBERS = 1 << 24 };

/* Texts of the held-out part, I32 [texts,tokens], spread evenly: as many as in a step, of the model's context, but fewer or
   shorter where their patterns would have more than PATTERN_NUMBERS numbers. */
static tn_tensor *held_out_texts(const run *r)
{
    const int64_t heads = r->m.desc.heads, fit = (int64_t)sqrt((double)PATTERN_NUMBERS / (double)heads);
    int64_t       T = r->m.desc.context;
    if (T > fit) T = fit;
    if (T > r->data.held_count) T = r->data.held_count;
    int64_t n = PATTERN_NUMBERS / (heads * T * T);
    if (n > r->s->batch) n = r->s->batch;
    if (n < 1) n = 1;
    int32_t *ids = (int32_t *)allocate((size_t)(n * T), sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        memcpy(ids + i * T, r->data.held + (r->data.held_count - T) * (2 * i + 1) / (2 * n), sizeof *ids * (size_t)T);
    tn_tensor *t = tn_tensor_2d(r->m.ctx, TN_I32, n, T);
    tn_write(t, TN_I32, ids, n * T);
    free(ids);
    return t;
}

/* Appends the entropy of each block's attention to a list, in nats; null where all of a pattern is zero. */
static void list_entropies(const run *r, buffer *line)
{
    const tn_mark start = tn_arena_mark(r->m.ctx);
    tn_tensor    *ids = held_out_texts(r);
    for (int64_t l = 0; l < r->m.desc.layers; l++) {
        const tn_mark mark = tn_arena_mark(r->m.ctx);
        tn_tensor    *p = tn_transformer_pattern(r->m.ctx, &r->m.net, ids, l);
        const int64_t count = p ? tn_tensor_count(p) : 0, n = p ? p->shape[3] : 1;
        float        *v = (float *)allocate((size_t)count + 1, sizeof *v);
        tn_read(p, TN_F32, v, count);
        check_ctx(r->m.ctx, "--log-layers");
        double entropy = mean_entropy(v, count / n, n);
        if (isnan(entropy)) buffer_print(line, l ? ",null" : "null");
        else buffer_print(line, l ? ",%.6g" : "%.6g", entropy);
        free(v);
        tn_arena_release(r->m.ctx, mark);
    }
    tn_arena_release(r->m.ctx, start);
}

snapshot open_snapshot(run *r)
{
    snapshot s;
    s.count = tn_params_count(r->m.params);
    s.before = (double **)allocate((size_t)s.count, sizeof *s.before);
    s.gradient = (double *)allocate((size_t)s.count, sizeof *s.gradient);
    for (int64_t i = 0; i < s.count; i++) {
        const tn_tensor *t = tn_params_at(r->m.params, i)->value;
        s.before[i] = numbers_of(t);
        if (t->grad) {
            double *g = numbers_of(t->grad);
            s.gradient[i] = root_mean_square(g, NULL, tn_tensor_count(t));
            free(g);
        }
    }
    check_ctx(r->m.ctx, "--log-layers");
    return s;
}

void close_snapshot(run *r, snapshot *s)
{
    buffer line = {0}, entropies = {0};
    for (int64_t i = 0; i < s->count; i++) {
        const tn_param *p = tn_params_at(r->m.params, i);
        const int64_t   n = tn_tensor_count(p->value);
        double         *after = numbers_of(p->value), size = root_mean_square(after, NULL, n);
        const double    change = root_mean_square(after, s->before[i], n), rank = effective_rank(r->m.ctx, p->value);
        buffer_print(&line, "%s{\"name\":", i ? "," : "");
        json_quote(&line, p->name, strlen(p->name));
        buffer_print(&line, ",\"rms\":%.6g,\"gradient_rms\":%.6g,\"update_ratio\":%.6g", size, s->gradient[i],
                     size > 0 ? change / size : 0);
        if (!isnan(rank)) buffer_print(&line, ",\"effective_rank\":%.4g", rank);
        buffer_print(&line, "}");
        free(after);
        free(s->before[i]);
    }
    check_ctx(r->m.ctx, "--log-layers");
    list_entropies(r, &entropies);
    journal_line(&r->journal, "\"step\":%lld,\"layers\":[%s],\"attention_entropy\":[%s]", (long long)r->step,
                 line.data ? line.data : "", entropies.data ? entropies.data : "");
    free(line.data);
    free(entropies.data);
    free(s->before);
    free(s->gradient);
}
