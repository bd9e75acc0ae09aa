/* layers.c - tn train --log-layers: what a step does to each parameter, as a line of the log */
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
    double  sum = 0;
    int64_t i;
    for (i = 0; i < n; i++) {
        const double d = v[i] - (w ? w[i] : 0);
        sum += d * d;
    }
    return n ? sqrt(sum / (double)n) : 0;
}

/* Of M^T M, with the squared singular values of M as its eigenvalues l: (sum l)^2 / sum l^2, between 1 and the smaller
   extent of M [rows,columns]. NaN where t is not a matrix. */
static double effective_rank(tn_ctx *ctx, tn_tensor *t)
{
    int64_t    shape[2];
    tn_tensor *m, *gram;
    double     trace, squares;
    if (t->rank < 2 || tn_tensor_count(t) == 0) return NAN;
    shape[1] = t->shape[t->rank - 1];
    shape[0] = tn_tensor_count(t) / shape[1];
    m = tn_reshape(t, 2, shape);
    gram = shape[0] < shape[1] ? tn_matmul(ctx, m, tn_transpose(m, 0, 1)) : tn_matmul(ctx, tn_transpose(m, 0, 1), m);
    trace = tn_item(tn_sum(ctx, tn_mul(ctx, m, m)));
    squares = tn_item(tn_sum(ctx, tn_mul(ctx, gram, gram)));
    return squares > 0 ? trace * trace / squares : 0;
}

snapshot open_snapshot(run *r)
{
    snapshot s;
    int64_t  i;
    s.count = tn_params_count(r->m.params);
    s.before = (double **)allocate((size_t)s.count, sizeof *s.before);
    s.gradient = (double *)allocate((size_t)s.count, sizeof *s.gradient);
    for (i = 0; i < s.count; i++) {
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
    buffer  line = {0};
    int64_t i;
    for (i = 0; i < s->count; i++) {
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
    journal_line(&r->journal, "\"step\":%lld,\"layers\":[%s]", (long long)r->step, line.data ? line.data : "");
    free(line.data);
    free(s->before);
    free(s->gradient);
}
