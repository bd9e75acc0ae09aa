/* setting.h: one case of cases.h on one context: its inputs written, the op run and recorded, its output and all gradients read. */

#ifndef TN_SETTING_H
#define TN_SETTING_H

#include "cases.h"

typedef struct result {
    double  *y, *gradient[CASE_INPUTS];     /* gradients of the bases, zeros where nothing flowed */
    int64_t  count, of[CASE_INPUTS];
    int      inputs, rank;
    tn_dtype dtype;                         /* of the output */
    int64_t  shape[TN_MAX_RANK];
} result;

static inline void result_free(result *r)
{
    free(r->y);
    for (int i = 0; i < r->inputs; i++) free(r->gradient[i]);
    memset(r, 0, sizeof *r);
}

static inline void result_copy(result *to, const result *from)
{
    *to = *from;
    to->y = (double *)malloc(sizeof(double) * (size_t)(from->count + 1));
    if (from->count > 0) memcpy(to->y, from->y, sizeof(double) * (size_t)from->count);
    for (int i = 0; i < from->inputs; i++) {
        if (!from->gradient[i]) continue;
        to->gradient[i] = (double *)malloc(sizeof(double) * (size_t)(from->of[i] + 1));
        memcpy(to->gradient[i], from->gradient[i], sizeof(double) * (size_t)from->of[i]);
    }
}

static inline void setting_begin(setting *s, tn_ctx *ctx, const test_case *of, int round, uint64_t seed, bool watch)
{
    memset(s, 0, sizeof *s);
    s->ctx = ctx;
    s->of = of;
    s->round = round;
    s->rng = s->seed = seed;
    s->watch = watch;
    s->params = tn_params_create(ctx);
    of->build(s);
}

static inline void setting_end(setting *s)
{
    tn_params_destroy(s->params);
    for (int i = 0; i < s->inputs; i++) free(s->in[i].v);
    free(s->want);
}

static inline void setting_write(setting *s, int k)
{
    case_input *in = &s->in[k];
    if (in->param) tn_ctx_reset(s->ctx);             /* what a tape still reads may not change */
    CHECK_STATUS(tn_write(in->base, TN_F64, in->v, in->count), TN_OK);
}

/* From the inputs' numbers to the output, recorded, with the random stream at its beginning. */
static inline tn_tensor *setting_run(setting *s)
{
    tn_ctx_reset(s->ctx);
    tn_ctx_seed(s->ctx, CASE_RANDOM);
    for (int k = 0; k < s->inputs; k++) {
        case_input *in = &s->in[k];
        if (in->param) continue;
        in->base = tn_tensor_nd(s->ctx, in->real ? s->dtype : TN_I32, in->base_rank, in->base_shape);
        setting_write(s, k);
        if (in->real) CHECK_STATUS(tn_watch(in->base), TN_OK);
    }
    tn_record(s->ctx);
    return s->of->run(s);
}

/* What the output is weighed with, to become one number: anything but ones. */
static inline double weight_of(int64_t i) { return 0.5 + (double)(i * 7 % 11) / 8 - (double)(i * 5 % 3); }

static inline double setting_loss(setting *s)
{
    tn_tensor *y = setting_run(s);
    int64_t    n = tn_tensor_count(y);
    double loss = 0, *v = (double *)malloc(sizeof(double) * (size_t)(n + 1));
    if (tn_read(y, TN_F64, v, n) != TN_OK) loss = (double)NAN;
    for (int64_t i = 0; i < n; i++) loss += v[i] * weight_of(i);
    free(v);
    return loss;
}

static inline bool setting_gradients(setting *s, tn_tensor *y, result *r)
{
    double *weights = (double *)malloc(sizeof(double) * (size_t)(r->count + 1));
    tn_tensor *w = tn_tensor_nd(s->ctx, TN_REAL, r->rank, r->shape);
    for (int64_t i = 0; i < r->count; i++) weights[i] = weight_of(i);
    CHECK_STATUS(tn_write(w, TN_F64, weights, r->count), TN_OK);
    free(weights);
    if (!CHECK_STATUS(tn_backward(s->ctx, tn_sum(s->ctx, tn_mul(s->ctx, y, w))), TN_OK)) return false;
    for (int k = 0; k < s->inputs; k++) {
        const case_input *in = &s->in[k];
        if (!in->real) continue;
        r->of[k] = in->count;
        r->gradient[k] = (double *)calloc((size_t)in->count + 1, sizeof(double));
        if (!CHECK(in->base->grad != NULL)) return false;
        if (!CHECK_STATUS(tn_read(in->base->grad, TN_F64, r->gradient[k], in->count), TN_OK)) return false;
    }
    return true;
}

static inline bool setting_result(setting *s, result *r)
{
    for (int k = 0; k < s->inputs; k++) if (s->in[k].param) setting_write(s, k);
    tn_tensor *y = setting_run(s);
    if (!CHECK(y != NULL)) return false;
    r->inputs = s->inputs;
    r->rank = y->rank;
    r->dtype = y->dtype;
    memcpy(r->shape, y->shape, sizeof r->shape);
    r->count = tn_tensor_count(y);
    r->y = (double *)malloc(sizeof(double) * (size_t)(r->count + 1));
    if (!CHECK_STATUS(tn_read(y, TN_F64, r->y, r->count), TN_OK)) return false;
    return !s->of->smooth || setting_gradients(s, y, r);
}

/* What failed, so that it can be looked at alone. */
static inline void setting_where(const char *name, const setting *s)
{
    char shape[8 * 21 + 3] = "";
    size_t n = 0;
    printf("     %s, case \"%s\", round %d, seed %" PRIu64 ", inputs", name, s->of->name, s->round, s->seed);
    for (int k = 0; k < s->inputs; k++) {
        n = 0;
        for (int i = 0; i < s->in[k].rank; i++)
            n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRId64, i ? "," : "", s->in[k].shape[i]);
        shape[n] = 0;
        printf(" [%s]%s", shape, s->in[k].recipe.flat ? " reshaped" : s->in[k].recipe.swap_a != s->in[k].recipe.swap_b ? " transposed" : "");
    }
    if (tn_ctx_status(s->ctx) != TN_OK) printf(": %s", tn_ctx_error(s->ctx));
    printf("\n");
    tn_ctx_clear_error(s->ctx);
}

#endif
