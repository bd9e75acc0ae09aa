/* Functions of tensors, their gradients, and update rules. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tensornet.h"

static int failures;

static void check(const char *what, double value, double expected, double within)
{
    const bool right = fabs(value - expected) <= within;
    printf("%-48s %.6g%s\n", what, value, right ? "" : "   FAIL");
    failures += !right;
}

static double at(const tn_tensor *t, int64_t i)
{
    double v[512] = {0};
    if (!t || tn_tensor_count(t) > 512 || tn_read(t, TN_F64, v, tn_tensor_count(t)) != TN_OK) return NAN;
    return v[i];
}

static tn_tensor *of(tn_ctx *ctx, int64_t n, int64_t m, const double *v)
{
    const int64_t shape[2] = {n, m};
    return tn_tensor_from(ctx, 2, shape, TN_F64, v);
}

static tn_tensor *ints(tn_ctx *ctx, int64_t n, const int32_t *v) { return tn_tensor_from(ctx, 1, &n, TN_I32, v); }

static void elements(tn_ctx *ctx)
{
    const double  v[6] = {1, -2, 3, 4, 5, -6}, w[3] = {10, 20, 30};
    const int32_t id[2] = {2, 0}, mask[3] = {1, 0, 1};
    const int64_t three = 3;
    tn_tensor    *a = of(ctx, 2, 3, v), *b = tn_tensor_from(ctx, 1, &three, TN_F64, w), *rows;
    check("add, broadcast", at(tn_add(ctx, a, b), 4), 25, 0);
    check("sub", at(tn_sub(ctx, a, b), 0), -9, 0);
    check("mul", at(tn_mul(ctx, a, b), 5), -180, 0);
    check("div", at(tn_div(ctx, a, b), 2), 0.1, 1e-15);
    check("scale", at(tn_scale(ctx, a, -2), 1), 4, 0);
    check("where", at(tn_where(ctx, ints(ctx, 3, mask), a, tn_scale(ctx, a, 100)), 1), -200, 0);
    check("sqrt, exp, log", at(tn_log(ctx, tn_exp(ctx, tn_sqrt(ctx, b))), 0), sqrt(10), 1e-14);
    check("sum", tn_item(tn_sum(ctx, a)), 5, 0);
    check("mean", tn_item(tn_mean(ctx, a)), 5.0 / 6, 1e-15);
    check("sum of an axis", at(tn_sum_axis(ctx, a, -1), 1), 3, 0);
    check("relu", at(tn_activation(ctx, a, TN_ACT_RELU), 1), 0, 0);
    check("gelu of 1", at(tn_activation(ctx, a, TN_ACT_GELU), 0), 0.8413447460685429, 1e-12);
    check("glu: x times y", at(tn_glu(ctx, tn_reshape_2d(a, 3, 2), TN_ACT_NONE), 1), 12, 0);
    check("product of three parts", at(tn_prod_parts(ctx, a, 3), 1), -120, 0);
    check("append one", at(tn_append_one(ctx, a), 3), 1, 0);
    check("matmul", at(tn_matmul(ctx, a, tn_transpose(a, 0, 1)), 1), 4 - 10 - 18, 0);
    check("affine", at(tn_affine(ctx, a, a, NULL), 0), 14, 0);
    check("eye", at(tn_eye(ctx, 3), 4), 1, 0);
    tn_tensor *both[2] = {a, a};
    check("concat", (double)tn_concat(ctx, 2, both, 1)->shape[1], 6, 0);
    check("stack", (double)tn_stack(ctx, 2, both, 0)->rank, 3, 0);
    check("gather", at(tn_gather(ctx, a, 1, ints(ctx, 2, id)), 2), -6, 0);
    check("embed", at(tn_embed(ctx, tn_reshape_2d(a, 3, 2), ints(ctx, 2, id)), 0), 5, 0);
    check("slice", at(tn_slice(a, 1, 1, 3), 0), -2, 0);
    check("backwards", at(tn_slice_step(a, 1, 2, -1, -1), 0), 3, 0);
    check("a view is not contiguous", tn_tensor_is_contiguous(tn_transpose(a, 0, 1)), 0, 0);
    check("copy", tn_tensor_is_contiguous(tn_copy(ctx, tn_transpose(a, 0, 1))), 1, 0);
    check("cast", at(tn_cast(ctx, a, TN_I32), 5), -6, 0);
    check("softmax", at(tn_softmax(ctx, a), 2), exp(3) / (exp(1) + exp(-2) + exp(3)), 1e-14);
    check("log softmax", at(tn_log_softmax(ctx, a), 2), log(exp(3) / (exp(1) + exp(-2) + exp(3))), 1e-14);
    check("rmsnorm", at(tn_rmsnorm(ctx, a, NULL, 0), 0), 1 / sqrt(14.0 / 3), 1e-14);
    check("layernorm", at(tn_layernorm(ctx, a, NULL, NULL, 0), 3), 3 / sqrt(74.0 / 3), 1e-14);
    check("sum of x and branch", at(tn_residual_rmsnorm(ctx, a, a, NULL, 1e-5, &rows) ? rows : NULL, 5), -12, 0);
    check("argmax", at(tn_argmax(ctx, a), 1), 1, 0);
    tn_tensor *where = NULL;
    check("largest two", at(tn_topk(ctx, a, 1, 2, TN_ORDER_LARGEST, &where), 2), 5, 0);
    check("their places", at(where, 3), 0, 0);
    check("sorted", at(tn_sort(ctx, a, 1, TN_ORDER_SMALLEST, NULL), 0), -2, 0);
    check("cross-entropy", tn_item(tn_cross_entropy(ctx, a, ints(ctx, 2, id))),
          (log(exp(1) + exp(-2) + exp(3)) - 3 + log(exp(4) + exp(5) + exp(-6)) - 4) / 2, 1e-14);
    check("accuracy", tn_item(tn_accuracy(ctx, a, ints(ctx, 2, id))), 0.5, 0);
    check("mse", tn_item(tn_mse(ctx, a, tn_scale(ctx, a, 0))), (14 + 77) / 6.0, 1e-14);
    const int64_t many[1] = {10000};
    check("mean of uniforms", tn_item(tn_mean(ctx, tn_uniform(ctx, 1, many, 0, 1))), 0.5, 0.02);
    check("variance of normals", tn_item(tn_mse(ctx, tn_normal(ctx, 1, many, 3, 2), tn_full(ctx, 1, many, 3))), 4, 0.3);
    char text[256];
    const int64_t length = tn_tensor_format(a, text, sizeof text);
    check("as text", (double)length, (double)strlen(text), 0);
    const char *names[2] = {"first", "second"};
    tn_tensor_table_desc d = {.row_names = names, .top = 1, .order = TN_ORDER_SMALLEST};
    check("as a table", tn_tensor_table(a, &d, text, sizeof text) > 0 && strstr(text, "second") && strstr(text, "-6"), 1, 0);
    tn_tensor *owned = tn_tensor_create(ctx, TN_REAL, 2, a->shape);
    check("owned tensors begin with zeros", at(owned, 5), 0, 0);
    check("assigned", tn_assign(owned, a) == TN_OK ? at(owned, 5) : 0, -6, 0);
    check("written", tn_write(owned, TN_F64, v + 1, 5) != TN_OK, 1, 0);
    tn_ctx_clear_error(ctx);
    tn_tensor_destroy(owned);
}

static void chains(tn_ctx *ctx)
{
    const double  v[12] = {2, 0, 0, 2, 1, 1, 0, 1, 0, 1, 1, 0}, one[2] = {1, 0};
    const int64_t shape[4] = {1, 3, 2, 2}, two = 2;
    tn_tensor *m = tn_tensor_from(ctx, 4, shape, TN_F64, v), *log_norm, *logs, *y = tn_chain(ctx, m, &log_norm);
    check("product of a chain [0,0]", at(y, 0) * exp(at(log_norm, 0)), 2, 1e-13);
    check("its norm is 1", tn_item(tn_sum(ctx, tn_mul(ctx, y, y))), 1, 1e-13);
    y = tn_scan(ctx, m, false, &logs);
    check("second prefix [0,1]", at(y, 5) * exp(at(logs, 1)), 2, 1e-13);
    y = tn_scan_vector(ctx, tn_tensor_from(ctx, 1, &two, TN_F64, one), m, false, &logs);
    check("a vector through all", at(y, 7) * exp(at(logs, 3)), 2, 1e-13);
    check("in blocks", at(tn_scan_blocks(ctx, m, 2, false, &logs), 8) * exp(at(logs, 2)), 2, 1e-13);
}

static void attention(tn_ctx *ctx)
{
    double        v[4 * 2 * 2], stepwise = 0;
    const int64_t shape[4] = {1, 4, 2, 2};
    for (int i = 0; i < 16; i++) v[i] = sin(i + 1.0);
    tn_tensor *x = tn_tensor_from(ctx, 4, shape, TN_F64, v), *y = tn_attend(ctx, x, x, x, NULL);
    check("the first query sees itself alone", at(y, 1), v[1], 1e-13);
    double w[2];
    for (int j = 0; j < 2; j++) w[j] = exp((v[4] * v[4 * j] + v[5] * v[4 * j + 1]) / sqrt(2));
    stepwise = (w[0] * v[0] + w[1] * v[4]) / (w[0] + w[1]);
    check("softmax, scale 1/sqrt(d)", at(y, 4), stepwise, 1e-13);
    tn_attend_desc d = {.kind = TN_ATTEND_SQUARED, .row_scale = TN_ROW_SCALE_NONE};
    for (int j = 0; j < 2; j++) w[j] = pow((v[4] * v[4 * j] + v[5] * v[4 * j + 1]) / 2, 2);
    check("squared, scale 1/d", at(tn_attend(ctx, x, x, x, &d), 4), w[0] * v[0] + w[1] * v[4], 1e-13);
    d.form = TN_ATTEND_FORM_LINEAR;
    check("in its linear form", at(tn_attend(ctx, x, x, x, &d), 4), w[0] * v[0] + w[1] * v[4], 1e-13);
    d = (tn_attend_desc){.window = 1};
    check("a window of one key", at(tn_attend(ctx, x, x, x, &d), 13), v[13], 1e-13);
    d = (tn_attend_desc){.bidirectional = true};
    check("later keys as well", fabs(at(tn_attend(ctx, x, x, x, &d), 1) - v[1]) > 1e-3, 1, 0);
    y = tn_rope(ctx, x, NULL);
    check("position 0 is not rotated", at(y, 0), v[0], 0);
    check("position 1 by 1 radian", at(y, 4), v[4] * cos(1) - v[5] * sin(1), 1e-13);
}

static void gradients(tn_ctx *ctx)
{
    const double v[4] = {0.3, -0.7, 1.1, 0.4};
    tn_ctx_reset(ctx);
    tn_record(ctx);
    tn_tensor *x = of(ctx, 2, 2, v);
    check("watch", tn_watch(x), TN_OK, 0);
    tn_tensor *y = tn_sum(ctx, tn_mul(ctx, tn_mul(ctx, x, x), x));
    check("backward", tn_backward(ctx, y), TN_OK, 0);
    check("3 x^2", at(x->grad, 1), 3 * 0.49, 1e-14);
    tn_ctx_reset(ctx);
    tn_record(ctx);
    const int64_t many[1] = {4096};
    double kept = tn_item(tn_mean(ctx, tn_dropout(ctx, tn_full(ctx, 1, many, 1), 0.25)));
    check("dropout keeps the mean", kept, 1, 0.05);
    check("noise", tn_item(tn_mean(ctx, tn_noise(ctx, tn_full(ctx, 1, many, 0), 1))), 0, 0.1);
    tn_ctx_reset(ctx);
}

/* One step from 1 with the gradient 2: what each rule and each default does. */
static double stepped(tn_ctx *ctx, const tn_optim_desc *d)
{
    tn_params    *ps = tn_params_create(ctx);
    const int64_t one[1] = {1};
    tn_param     *p = tn_params_add(ps, "p", 1, one, (tn_init){.rule = TN_INIT_ONE});
    tn_optim     *o = tn_optim_create(ps, d);
    tn_ctx_reset(ctx);
    tn_record(ctx);
    tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, p->value, p->value)));
    if (tn_optim_step(o) != TN_OK) puts(tn_ctx_error(ctx));
    check("gradient norm", tn_optim_grad_norm(o), 2, 1e-14);
    const double after = at(p->value, 0);
    tn_params_destroy(ps);
    return after;
}

static void rules(tn_ctx *ctx)
{
    check("AdamW by default, lr 1e-3", stepped(ctx, NULL), 1 - 1e-3, 1e-9);
    check("SGD, lr 1e-2", stepped(ctx, &(tn_optim_desc){.kind = TN_OPTIM_SGD}), 1 - 0.02, 1e-14);
    check("clipped to norm 1", stepped(ctx, &(tn_optim_desc){.kind = TN_OPTIM_SGD, .lr = 0.1, .clip_norm = 1}), 0.9, 1e-14);
    check("decoupled decay", stepped(ctx, &(tn_optim_desc){.kind = TN_OPTIM_SGD, .lr = 0.1, .weight_decay = 0.5}),
          1 - 0.2, 0.051);
    tn_schedule s = {.kind = TN_SCHEDULE_LINEAR, .warmup = 10, .total = 110, .floor = 0};
    check("halfway down a line", tn_schedule_at(&s, 60), 0.5, 0.011);
    check("no schedule", tn_schedule_at(NULL, 7), 1, 0);

    tn_params    *ps = tn_params_create(ctx);
    const int64_t shape[2] = {4, 6};
    tn_params_add(ps, "layer.w", 2, shape, (tn_init){0});
    tn_params_add(ps, "layer.b", 1, shape, (tn_init){.rule = TN_INIT_ZERO});
    check("frozen", (double)tn_params_freeze(ps, "*.w"), 1, 0);
    check("thawed", (double)tn_params_thaw(ps, "layer."), 2, 0);
    check("scales", (double)tn_params_set_scales(ps, "*.b", 2, 0), 1, 0);
    check("AdamW", (double)tn_params_use_adamw(ps, ""), 2, 0);
    tn_optim *muon = tn_optim_create(ps, &(tn_optim_desc){.kind = TN_OPTIM_MUON});
    check("Muon's lr", tn_optim_lr(muon), 2e-2, 1e-15);
    check("Muon's momentum", tn_optim_momentum(muon), 0.95, 1e-15);
    tn_params *copy = tn_params_clone(ctx, ps);
    check("a clone", tn_params_elements(copy) == 28 && tn_params_at(copy, 0)->adamw && tn_params_ctx(copy) == ctx, 1, 0);
    check("tied", tn_params_tie(ps, "head.w", "layer.w") == TN_OK && tn_params_find(ps, "head.w") == tn_params_at(ps, 0), 1, 0);
    check("zero gradients", tn_params_zero_grad(ps), TN_OK, 0);
    tn_params_destroy(ps);
}

int main(void)
{
    tn_ctx *ctx;
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64, .threads = 1, .backend = tn_cpu_backend()}, &ctx, NULL) != TN_OK) return 1;
    check("version", strcmp(tn_version(), "0") > 0, 1, 0);
    check("backend", strcmp(tn_ctx_backend_name(ctx), "cpu"), 0, 0);
    check("dtype", tn_ctx_dtype(ctx) == TN_F64 && tn_ctx_activations(ctx) == TN_F64 && tn_ctx_threads(ctx) == 1, 1, 0);
    check("its name", strcmp(tn_dtype_name(TN_F64), "F64"), 0, 0);
    check("a level", tn_ctx_simd_name(ctx)[0] != 0, 1, 0);
    elements(ctx);
    chains(ctx);
    attention(ctx);
    gradients(ctx);
    rules(ctx);
    tn_ctx_seed(ctx, 9);
    check("no error is left", tn_ctx_status(ctx), TN_OK, 0);
    if (tn_ctx_status(ctx) != TN_OK) puts(tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return failures != 0;
}
