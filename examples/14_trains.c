/* 14_trains.c - vectors of a million million numbers, and matrices on them, as trains of small tensors

   cc -O2 -I. examples/14_trains.c -o 14_trains -lm && ./14_trains

   A function at 2^40 points is a tensor with 40 axes of two elements, one for each binary digit of a point's number. A wave
   needs two numbers in each bond of a train, its sine and its cosine so far, which every digit turns by its own angle. So
   waves are added, measured and differentiated at a million million points in some microseconds. Oseledets 2009 */
#include <math.h>
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { DIGITS = 40, FEW = 3, SIZE = 1 << FEW };

static const double pi = 3.14159265358979323846;

/* sin(2 pi frequency t + phase) for t = 0, 1/2^40, 2/2^40, ..: (sin a, cos a) R_0 R_1 .. R_39, and of that the sine. */
static tn_tt *wave(tn_ctx *ctx, double frequency, double phase)
{
    tn_tensor *core[DIGITS];
    for (int k = 0; k < DIGITS; k++) {
        double g[2][2][2], angle = 2 * pi * fmod(ldexp(frequency, -1 - k), 1), s = sin(phase), c = cos(phase);
        for (int digit = 0; digit < 2; digit++) {
            double turn = digit * angle;
            g[0][digit][0] = g[1][digit][1] = cos(turn);
            g[1][digit][0] = sin(turn);
            g[0][digit][1] = -sin(turn);
        }
        tn_tensor *whole = tn_tensor_from(ctx, 3, (int64_t[]){2, 2, 2}, TN_F64, g), *start;
        start = tn_tensor_from(ctx, 2, (int64_t[]){1, 2}, TN_F64, (double[]){s, c});
        core[k] = k == 0 ? tn_tensordot(ctx, start, 1, whole, 0) : k == DIGITS - 1 ? tn_slice(whole, 2, 0, 1) : whole;
    }
    return tn_tt_create(ctx, DIGITS, core);
}

/* The matrix that moves every element to the next point, the last one to the first. Each of its cores adds a carry from the
   right to its digit, and passes the new carry on to the left: M[carry out, (digit after, digit before), carry in]. */
static tn_tt *next(tn_ctx *ctx, int digits)
{
    tn_tensor *core[DIGITS];
    double     g[2][2][2][2] = {{{{0}}}};
    for (int digit = 0; digit < 2; digit++)
        for (int carry = 0; carry < 2; carry++) g[digit & carry][digit ^ carry][digit][carry] = 1;
    tn_tensor *whole = tn_tensor_from(ctx, 3, (int64_t[]){2, 4, 2}, TN_F64, g), *ones = tn_full(ctx, 2, (int64_t[]){1, 2}, 1);
    for (int k = 0; k < digits; k++)
        core[k] = k == 0 ? tn_tensordot(ctx, ones, 1, whole, 0) : k == digits - 1 ? tn_slice(whole, 2, 1, 2) : whole;
    return tn_tt_create(ctx, digits, core);
}

int main(void)
{
    char    why[TN_WHY], text[1000];
    tn_ctx *ctx;
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64}, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    /* A sine and a cosine. Their sum has bonds of 4, although one wave is enough for it: rounding finds that out. */
    double norm, inner, gap, slope;
    tn_tt *s = wave(ctx, 3, 0), *c = wave(ctx, 3, pi / 2), *sum = tn_tt_add(s, c), *round = tn_tt_round(sum, NULL);
    tn_tt *expected = tn_tt_scale(wave(ctx, 3, pi / 4), sqrt(2));
    tn_tt_norm(s, &norm);
    tn_tt_inner(s, c, &inner);
    tn_tt_norm(tn_tt_add(round, tn_tt_scale(expected, -1)), &gap);

    /* The slope of a wave is the difference of neighbours: as long as the wave itself, times 2 pi 3. */
    tn_tt *before = tn_tt_apply(next(ctx, DIGITS), s), *difference = tn_tt_add(s, tn_tt_scale(before, -1));
    tn_tt_norm(difference, &slope);

    /* The same matrix with three digits is small enough to look at. From its numbers the train is found again, and a layer
       whose weights are a train computes with it, and could be trained. */
    tn_tt       *few = next(ctx, FEW), *found;
    int64_t      twos[FEW] = {2, 2, 2};
    tn_tensor   *matrix = tn_tt_matrix(few, twos, twos);
    tn_tt_linear layer;
    double       x[SIZE] = {10, 20, 30, 40, 50, 60, 70, 80}, y[SIZE];
    found = tn_tt_from_matrix(ctx, matrix, FEW, twos, twos, NULL);
    tn_tt_linear_init(tn_params_create(ctx), "next", &(tn_tt_linear_desc){.count = FEW, .in = {2, 2, 2}, .out = {2, 2, 2},
        .bond = 2}, &layer);
    tn_tt_linear_assign_tt(&layer, found);
    tn_read(tn_tt_linear_forward(ctx, &layer, tn_tensor_from(ctx, 1, (int64_t[]){SIZE}, TN_F64, x)), TN_F64, y, SIZE);
    if (tn_tensor_format(matrix, text, sizeof text) >= 0) printf("the next point, as a matrix =\n%s\n\nthe layer:", text);
    for (int i = 0; i < SIZE; i++) printf(" %.0f", y[i]);

    /* How large must a bond be? The singular values of each cut tell it: of a bell curve at 4,096 points, cut in the middle. */
    static double bell[1 << 12];
    double        values[64], dropped;
    int64_t       digits[12] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    for (int i = 0; i < 1 << 12; i++) bell[i] = exp(-pow((i - 2048) / 300.0, 2));
    tn_tensor *dense = tn_tensor_from(ctx, 1, (int64_t[]){1 << 12}, TN_F64, bell);
    tn_tt     *curve = tn_tt_svd(ctx, dense, 12, digits, NULL), *small = tn_tt_round(curve, &(tn_tt_desc){.eps = 1e-3});
    tn_tensor *cut = tn_slice(tn_tt_singular_values(curve), 0, 5, 6), *back = tn_tt_dense(small);
    int64_t    most = cut ? cut->shape[1] : 0;                          /* padded by zeros to the largest bond */
    tn_read(cut, TN_F64, values, most);
    int64_t keep = tn_truncation_count(&(tn_truncation){.weight = 1e-6}, most, values, &dropped);
    double  error = sqrt(tn_item(tn_mse(ctx, back, dense)) / tn_item(tn_mean(ctx, tn_mul(ctx, dense, dense))));
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("\n\nnorm_over_expected: %.12f\n", norm / sqrt(ldexp(1, DIGITS - 1)));
    printf("cosine_of_sine_and_cosine: %.12f\n", fabs(inner / (norm * norm)));
    printf("bond_of_the_sum: %d, rounded: %d\n", (int)sum->core[20]->shape[0], (int)round->core[20]->shape[0]);
    printf("error_of_the_sum: %.12f\n", gap / norm);
    printf("slope_over_2_pi_3: %.4f\n", slope / norm * ldexp(1, DIGITS) / (6 * pi));
    printf("bond_of_the_matrix: %d\n", (int)found->core[1]->shape[0]);
    printf("bond_of_the_bell: %d, error: %.4f\n", (int)keep, error);
    tn_ctx_destroy(ctx);
    return 0;
}
