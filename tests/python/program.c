/* program.c: computes in C what test_tensornet.py computes in Python, which must be the same to the last bit. */
#include <stdio.h>
#include "tensornet.h"

static void show(const char *name, const tn_tensor *t)
{
    double  numbers[512];
    int64_t n = tn_tensor_count(t);
    if (n > 512 || tn_read(t, TN_F64, numbers, n) != TN_OK) return;
    printf("%s", name);
    for (int64_t i = 0; i < n; i++) printf(" %a", numbers[i]);
    printf("\n");
}

int main(void)
{
    const float bits[8] = {0, 0, 1, 0, 0, 1, 1, 1}, goal[4] = {0, 1, 1, 0};
    tn_desc     desc = {0};
    tn_ctx     *ctx;
    desc.seed = 7;
    desc.threads = 1;
    if (tn_ctx_create(&desc, &ctx, NULL) != TN_OK) return 1;

    /* XOR, trained: the library's random numbers, gradients and optimiser */
    tn_params    *params = tn_params_create(ctx);
    tn_mlp_desc   mlp = {0};
    tn_mlp        layer;
    tn_optim_desc how = {0};
    mlp.in = 2;
    mlp.hidden = 3;
    mlp.out = 1;
    mlp.bias = mlp.out_bias = true;
    tn_mlp_init(params, "xor", &mlp, &layer);
    how.lr = 0.05;
    how.schedule.kind = TN_SCHEDULE_COSINE;
    how.schedule.warmup = 10;
    how.schedule.total = 100;
    tn_optim *optim = tn_optim_create(params, &how);
    for (int step = 0; step < 100; step++) {
        tn_ctx_reset(ctx);
        tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, 4, 2), *y = tn_tensor_2d(ctx, TN_REAL, 4, 1);
        tn_write(x, TN_F32, bits, 8);
        tn_write(y, TN_F32, goal, 4);
        tn_record(ctx);
        tn_tensor *loss = tn_mse(ctx, tn_mlp_forward(ctx, &layer, x), y);
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) return 1;
        if (step % 25 == 0) show("loss", loss);
    }
    show("w", layer.w);

    /* its operator */
    tn_cp      *cp = tn_cp_from_mlp(ctx, &layer), *quadratic;
    tn_tensor  *linear, *constant;
    tn_eigenpairs    eigen;
    tn_spectrum spectrum;
    double      norm;
    if (tn_cp_eigen_all(cp, 3, &eigen) != TN_OK || tn_cp_spectrum(cp, 3, &spectrum) != TN_OK) return 1;
    if (tn_cp_split(cp, &quadratic, &linear, &constant) != TN_OK || tn_cp_norm(cp, &norm) != TN_OK) return 1;
    show("values", eigen.values);
    show("vectors", eigen.vectors);
    show("linear", linear);
    show("dense", tn_cp_dense_symmetric(quadratic));
    printf("norm %a\n", norm);
    show("rank", spectrum.rank_low);

    /* decompositions, a product of several tensors, and the largest of numbers */
    tn_svd_result   svd;
    const int64_t   shape[2] = {7, 5};
    tn_tensor      *a = tn_normal(ctx, 2, shape, 0, 1), *ids;
    tn_tensor *operands[2] = {a, a};
    show("einsum", tn_einsum(ctx, "ij,ik->jk", 2, operands));
    if (tn_svd(ctx, a, NULL, &svd) != TN_OK) return 1;
    show("s", svd.s);
    show("top", tn_topk(ctx, a, 1, 2, TN_ORDER_MAGNITUDE, &ids));
    show("ids", ids);
    tn_ctx_destroy(ctx);
    return 0;
}
