/* Trains a bilinear layer to multiply two numbers, saves it, loads it again, and reads from its weights what
   it has learnt: the one file, with the small set of parts. */
#include <math.h>
#include <stdio.h>
#define TN_SMALL
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

static int failures;

static void check(const char *what, double value, double expected, double within)
{
    const bool right = fabs(value - expected) <= within;
    printf("%-48s %.6g%s\n", what, value, right ? "" : "   FAIL");
    failures += !right;
}

static tn_status make(tn_params *params, tn_linear *embed, tn_mlp *layer)
{
    tn_linear_init(params, "embed", &(tn_linear_desc){.in = 2, .out = 4}, embed);
    return tn_mlp_init(params, "layer", &(tn_mlp_desc){.in = 4, .hidden = 6, .out = 1, .out_bias = true}, layer);
}

static tn_tensor *forward(tn_ctx *ctx, const tn_linear *embed, const tn_mlp *layer, tn_tensor *x)
{
    return tn_mlp_forward(ctx, layer, tn_linear_forward(ctx, embed, x));
}

int main(void)
{
    enum { ROWS = 64 };
    tn_ctx   *ctx;
    tn_linear embed;
    tn_mlp    layer;
    char      why[TN_WHY] = "";
    if (tn_ctx_create(&(tn_desc){.seed = 5, .threads = 1}, &ctx, why) != TN_OK) return puts(why), 1;
    tn_params *params = tn_params_create(ctx);
    if (make(params, &embed, &layer) != TN_OK) return puts(tn_ctx_error(ctx)), 1;
    check("parameters", (double)tn_params_count(params), 4, 0);
    check("numbers in them", (double)tn_params_elements(params), 4 * 2 + 2 * 6 * 4 + 6 + 1, 0);
    check("encoders of the layer", (double)layer.w->shape[0], 2, 0);

    const int64_t shape[2] = {ROWS, 2}, column[2] = {ROWS, 1};
    float         points[ROWS][2], products[ROWS];
    for (int i = 0; i < ROWS; i++) {
        points[i][0] = (float)(i % 8) / 4 - 0.875f;
        points[i][1] = (float)(i / 8) / 4 - 0.875f;
        products[i] = points[i][0] * points[i][1];
    }
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){
        .lr = 0.03, .schedule = {.kind = TN_SCHEDULE_COSINE, .warmup = 10, .total = 400, .floor = 0.05}});
    double loss = 1;
    for (int step = 0; step < 400; step++) {
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *y = forward(ctx, &embed, &layer, tn_tensor_from(ctx, 2, shape, TN_F32, points));
        tn_tensor *mse = tn_mse(ctx, y, tn_tensor_from(ctx, 2, column, TN_F32, products));
        if (tn_backward(ctx, mse) != TN_OK || tn_optim_step(optim) != TN_OK) return puts(tn_ctx_error(ctx)), 1;
        loss = tn_item(mse);
    }
    check("loss", loss, 0, 1e-6);
    check("steps", (double)tn_optim_step_count(optim), 400, 0);
    check("learning rate at the end", tn_optim_lr(optim), 0.05 * 0.03, 1e-9);
    if (tn_params_save(params, "train.safetensors") != TN_OK) return puts(tn_ctx_error(ctx)), 1;

    /* Another context reads the file. */
    tn_ctx   *other;
    tn_linear embed2;
    tn_mlp    layer2;
    if (tn_ctx_create(NULL, &other, NULL) != TN_OK) return 1;
    tn_params *params2 = tn_params_create(other);
    make(params2, &embed2, &layer2);
    if (tn_params_load(params2, "train.safetensors") != TN_OK) return puts(tn_ctx_error(other)), 1;
    const float   x[2] = {0.5f, -0.75f};
    const int64_t one[2] = {1, 2};
    tn_tensor    *y = forward(other, &embed2, &layer2, tn_tensor_from(other, 2, one, TN_F32, x));
    check("0.5 * -0.75", tn_item(y), -0.375, 2e-3);

    /* The function as one tensor of the two inputs: folded, its matrix has 1/2 beside the diagonal. */
    tn_cp     *cp = tn_cp_fold_in(tn_cp_from_mlp(other, &layer2), embed2.w, NULL);
    tn_tensor *q = cp ? tn_cp_interaction_of(cp, 0) : NULL;
    float      number[9] = {0};
    if (!q) return puts(tn_ctx_error(other)), 1;
    const int64_t n = q->shape[0];
    check("extent of the matrix", (double)n, 2 + (cp->constant ? 1 : 0), 0);
    tn_read(q, TN_F32, number, n * n);
    check("Q[0,1]", number[1], 0.5, 2e-3);
    check("Q[1,0]", number[n], 0.5, 2e-3);
    check("Q[0,0]", number[0], 0, 2e-3);
    check("the operator applied", tn_item(tn_cp_apply(other, cp, tn_tensor_from(other, 2, one, TN_F32, x))), -0.375, 2e-3);

    tn_eigenpairs e;
    if (tn_cp_eigen_all(cp, 2, &e) != TN_OK) return puts(tn_ctx_error(other)), 1;
    float values[2];
    tn_read(e.values, TN_F32, values, 2);
    check("eigenvalues have opposite signs", values[0] * values[1], -0.25, 4e-3);
    tn_cp *again = tn_cp_from_eigen(other, &e, 2);
    double cosine = 0;
    if (tn_cp_cosine(cp, again, &cosine) != TN_OK) return puts(tn_ctx_error(other)), 1;
    check("cosine with the operator of the pairs", cosine, 1, 1e-4);
    tn_eigenpairs_destroy(&e);

    tn_ctx_destroy(other);
    tn_optim_destroy(optim);
    tn_ctx_destroy(ctx);
    return failures != 0;
}
