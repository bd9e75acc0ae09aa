/* 02_line.c - fit a line by gradient descent, written out by hand

   cc -O2 -I. examples/02_line.c -o 02_line -lm && ./02_line

   64 points lie near y = 2 x + 1. We look for the slope w and the intercept b with the smallest mean squared error. Each
   step shows all that training consists of: compute the loss while recording, run the backward pass for its gradients, and
   move every parameter a little against its gradient. At the end the result is compared with the exact solution, least
   squares by a QR decomposition. */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

int main(void)
{
    const int64_t one[] = {1}, column[] = {64, 1}, both[] = {64, 2};
    char          why[TN_WHY];
    tn_ctx       *ctx;
    if (tn_ctx_create(&(tn_desc){ .seed = 1, .dtype = TN_F64 }, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    /* The data outlives the steps below, so it is owned: tn_tensor_keep and tn_tensor_create. */
    tn_tensor *x = tn_tensor_keep(tn_uniform(ctx, 2, column, -1, 1));
    tn_tensor *line = tn_add(ctx, tn_scale(ctx, x, 2), tn_full(ctx, 1, one, 1));
    tn_tensor *y = tn_tensor_keep(tn_add(ctx, line, tn_normal(ctx, 2, column, 0, 0.1)));

    tn_params *params = tn_params_create(ctx);
    tn_param  *slope = tn_params_add(params, "slope", 1, one, (tn_init){ .rule = TN_INIT_ZERO });
    tn_param  *intercept = tn_params_add(params, "intercept", 1, one, (tn_init){ .rule = TN_INIT_ZERO });
    if (!slope || !intercept) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    tn_tensor *w = slope->value, *b = intercept->value;
    for (int step = 0; step <= 200; step++) {
        tn_ctx_reset(ctx);                                  /* drops the tensors of the last step */
        tn_record(ctx);
        tn_tensor *loss = tn_mse(ctx, tn_add(ctx, tn_mul(ctx, x, w), b), y);
        if (tn_backward(ctx, loss) != TN_OK) break;         /* now w->grad is d loss / d w */
        if (step % 40 == 0) printf("step %3d  loss %.6f  w %.4f  b %.4f\n", step, tn_item(loss), tn_item(w), tn_item(b));
        tn_assign(w, tn_sub(ctx, w, tn_scale(ctx, w->grad, 0.2)));
        tn_assign(b, tn_sub(ctx, b, tn_scale(ctx, b->grad, 0.2)));
        tn_params_zero_grad(params);                        /* a backward pass adds to the gradients */
    }

    /* Least squares: with X = [x 1] = Q R the best [w b] solves R [w b] = Q^T y, from the last line up. */
    tn_tensor   *X = tn_tensor_create(ctx, TN_REAL, 2, both);
    tn_qr_result qr;
    double       r[4], c[2];
    tn_assign(tn_slice(X, 1, 0, 1), x);
    tn_assign(tn_slice(X, 1, 1, 2), tn_full(ctx, 2, column, 1));
    tn_qr(ctx, X, NULL, &qr);
    tn_read(qr.r, TN_F64, r, 4);
    tn_read(tn_matmul(ctx, tn_transpose(qr.q, 0, 1), y), TN_F64, c, 2);
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    double best_b = c[1] / r[3], best_w = (c[0] - r[1] * best_b) / r[0];
    double apart_w = tn_item(w) - best_w, apart_b = tn_item(b) - best_b;
    printf("\nslope: %.4f\nintercept: %.4f\n", tn_item(w), tn_item(b));
    printf("least_squares_slope: %.4f\nleast_squares_intercept: %.4f\n", best_w, best_b);
    printf("equal_to_1e-6: %s\n", apart_w * apart_w + apart_b * apart_b < 1e-12 ? "yes" : "no");
    tn_qr_destroy(&qr);
    tn_ctx_destroy(ctx);
    return 0;
}
