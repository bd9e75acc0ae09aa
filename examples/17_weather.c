/* 17_weather.c - a model of the weather as an operator: its equations read, its steps composed, its uncertainty computed

   cc -O2 -I. examples/17_weather.c -o 17_weather -lm && ./17_weather

   Eight cells lie on a circle of latitude. Each is moved by its neighbours, slowed down and heated: x_i' = (x_(i+1) -
   x_(i-2)) x_(i-1) - x_i + 8, a model on which methods of weather forecasting are tested. A small step is quadratic, so it
   is an operator of order 2: a tensor of 8 x 9 x 9 numbers, 9 with the constant one. What one asks of a layer can be
   asked of the weather. Lorenz 1996 */
#include <math.h>
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { CELLS = 8, ONE = CELLS, DRAWN = 20000 };

static const double step = 0.05, heat = 8, sigma = 0.5;

/* |a - b| / |a| */
static double apart(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    return sqrt(tn_item(tn_mse(ctx, a, b)) / tn_item(tn_mean(ctx, tn_mul(ctx, a, a))));
}

int main(void)
{
    static double t[CELLS][CELLS + 1][CELLS + 1];
    const int64_t cells[] = {CELLS}, shape[] = {CELLS, CELLS + 1, CELLS + 1};
    char          why[TN_WHY];
    tn_ctx       *ctx;
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64, .seed = 1}, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    for (int i = 0; i < CELLS; i++) {
        int after = (i + 1) % CELLS, before = (i + CELLS - 1) % CELLS, further = (i + CELLS - 2) % CELLS;
        t[i][after][before] += step;
        t[i][further][before] -= step;
        t[i][i][ONE] += 1 - step;
        t[i][ONE][ONE] += step * heat;
    }

    /* From its tensor the operator has a term for each row of each matrix, 72. A fit finds that four for each cell are
       enough: two products of neighbours, the cell itself, and a constant. The equation of a cell can be read from them. */
    double     error;
    tn_cp     *whole = tn_cp_from_tensor(ctx, tn_tensor_from(ctx, 3, shape, TN_F64, t), TN_CP_INPUT_CONSTANT);
    tn_cp     *cp = tn_cp_refit(whole, &(tn_cp_refit_desc){.terms = 4 * CELLS}, &error);
    tn_coefficients largest;
    double     first[CELLS] = {1}, value[4];
    int32_t    index[4][3];
    tn_tensor *cell = tn_tensor_from(ctx, 2, (int64_t[]){1, CELLS}, TN_F64, first);
    tn_cp_top(tn_cp_fold_out(cp, cell, NULL), 4, false, &largest);
    tn_read(largest.values, TN_F64, value, 4);
    tn_read(largest.index, TN_I32, index, 12);
    printf("x0 after a step:");
    for (int i = 0; i < 4; i++) {                           /* an entry with two different inputs stands for two coefficients */
        printf(" %+.2f", value[i] * (index[i][1] == index[i][2] ? 1 : 2));
        for (int k = 1; k <= 2; k++)
            if (index[i][k] != ONE) printf(" x%d", (int)index[i][k]);
    }

    /* Two steps are one operator of order 4, and four steps a network of order 16, whose tensor has 10^16 numbers. */
    tn_tensor *x = tn_normal(ctx, 1, cells, 2, 3), *x1 = tn_cp_apply(ctx, cp, x), *x2 = tn_cp_apply(ctx, cp, x1);
    tn_tensor *x4 = tn_cp_apply(ctx, cp, tn_cp_apply(ctx, cp, x2));
    tn_cp     *two = tn_cp_compose(cp, cp);
    tn_net    *four = tn_net_from_stack(ctx, 4, (const tn_cp *[]){cp, cp, cp, cp}, false);
    double     composed = apart(ctx, x2, tn_cp_apply(ctx, two, x)), stacked = apart(ctx, x4, tn_net_apply(ctx, four, x));

    /* What becomes of a small disturbance d of neighbouring cells, two by two? 2 B(x,d): one input of the operator is the
       weather, the other one such a disturbance, of four numbers and a zero in place of the constant one. */
    double pair[CELLS][CELLS / 2] = {{0}}, d[CELLS / 2 + 1] = {1e-3};
    for (int i = 0; i < CELLS; i++) pair[i][i / 2] = 1;
    tn_tensor *pairs = tn_tensor_from(ctx, 2, (int64_t[]){CELLS, CELLS / 2}, TN_F64, pair);
    tn_tensor *small = tn_tensor_from(ctx, 1, (int64_t[]){CELLS / 2 + 1}, TN_F64, d);
    tn_cp     *tangent = tn_cp_fold_slot(tn_cp_symmetrise(cp), 1, pairs, NULL);
    tn_tensor *grown = tn_scale(ctx, tn_cp_apply_each(ctx, tangent, (tn_tensor *[]){x, small}), 2);
    tn_tensor *moved = tn_add(ctx, x, tn_tensordot(ctx, pairs, 1, tn_slice(small, 0, 0, CELLS / 2), 0));
    double     linear = apart(ctx, tn_sub(ctx, tn_cp_apply(ctx, cp, moved), x1), grown);

    /* Today's weather is known to 0.5 in each cell. How well is tomorrow's? The second moment after the step, exactly. */
    tn_tensor *one = tn_append_one(ctx, x), *s = tn_einsum(ctx, "i,j->ij", 2, (tn_tensor *[]){one, one});
    double     spread[CELLS + 1][CELLS + 1] = {{0}}, moment[CELLS][CELLS], mean[CELLS];
    for (int i = 0; i < CELLS; i++) spread[i][i] = sigma * sigma;
    s = tn_add(ctx, s, tn_tensor_from(ctx, 2, s ? s->shape : NULL, TN_F64, spread));
    tn_read(tn_cp_gaussian_moment(cp, cp, s), TN_F64, moment, CELLS * CELLS);
    tn_read(tn_einsum(ctx, "oij,ij->o", 2, (tn_tensor *[]){tn_cp_dense(cp), s}), TN_F64, mean, CELLS);
    tn_tensor *draws = tn_add(ctx, x, tn_normal(ctx, 2, (int64_t[]){DRAWN, CELLS}, 0, sigma));
    tn_tensor *fate = tn_slice(tn_cp_apply(ctx, cp, draws), 1, 0, 1), *centre = tn_sub(ctx, fate, tn_full(ctx, 0, NULL, mean[0]));
    double     sampled = sqrt(tn_item(tn_mean(ctx, tn_mul(ctx, centre, centre))));
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("\n\nterms: %d, after the fit: %d\nerror_of_the_fit: %.5f\n", (int)whole->terms, (int)cp->terms, error);
    printf("order_of_two_steps: %d\nerror_of_two_steps: %.6f\nerror_of_four_steps: %.6f\n", two->order, composed, stacked);
    printf("error_of_the_disturbance: %.4f\n", linear);
    printf("uncertainty_of_x0: %.4f, of %d samples: %.4f\n", sqrt(moment[0][0] - mean[0] * mean[0]), DRAWN, sampled);
    tn_coefficients_destroy(&largest);
    tn_ctx_destroy(ctx);
    return 0;
}
