/* 21_layers.c - which layer for my function? Four small networks learn six curves

   cc -O2 -I. examples/21_layers.c -o 21_layers -lm && ./21_layers

   A bilinear layer of one input is a polynomial of degree two, however many hidden units it has: it follows a parabola exactly,
   and nothing else. Two of them, one after the other, make degree four. A layer with an activation function is not a polynomial:
   ReLU draws with straight pieces, SwiGLU with smooth ones. For each curve the program prints what error is left and draws what
   was learned, as SVG. It computes in double, so that the last digits depend little on the processor. */
#include <math.h>
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { CURVES = 6, NETWORKS = 4, POINTS = 40, HIDDEN = 16, STEPS = 1500 };

static const char *const curve_name[CURVES] = {"parabola", "absolute", "steering", "wave", "quartic", "step"};
static const char *const formula[CURVES] = {"x\xC2\xB2 \xE2\x88\x92 x/2", "|x|", "tanh 3x", "sin 2\xCF\x80x",
                                            "8x\xE2\x81\xB4 \xE2\x88\x92 8x\xC2\xB2 + 1", "0 or 1"};
static const struct { const char *name; tn_mlp_kind kind; int layers; } network[NETWORKS] = {
    {"bilinear", TN_MLP_BILINEAR, 1}, {"ReLU", TN_MLP_RELU, 1}, {"SwiGLU", TN_MLP_SWIGLU, 1}, {"2 bilinear", TN_MLP_BILINEAR, 2}};

static double curve_at(int curve, double x)
{
    const double pi = 3.14159265358979;
    switch (curve) {
    case 0:  return x * x - x / 2;
    case 1:  return fabs(x);
    case 2:  return tanh(3 * x);
    case 3:  return sin(2 * pi * x);
    case 4:  return 8 * x * x * x * x - 8 * x * x + 1;
    default: return x < 0.2 ? 0 : 1;
    }
}

/* Trains a network on the points, and returns the mean squared error that is left; `learned` [POINTS] is what it says then. */
static double learn(tn_ctx *ctx, int which, const double *x, const double *y, double *learned)
{
    const int64_t shape[2] = {POINTS, 1};
    double        error = 0;
    tn_mlp        layer[2];
    tn_params    *params = tn_params_create(ctx);
    for (int i = 0; i < network[which].layers; i++) {
        bool first = i == 0, last = i == network[which].layers - 1;
        tn_mlp_init(params, i ? "second" : "first", &(tn_mlp_desc){ .kind = network[which].kind, .in = first ? 1 : HIDDEN,
            .hidden = HIDDEN, .out = last ? 1 : HIDDEN, .bias = true, .out_bias = true }, &layer[i]);
    }
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 0.03,
        .schedule = { .kind = TN_SCHEDULE_COSINE, .total = STEPS } });
    for (int step = 0; step <= STEPS; step++) {
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *t = tn_tensor_from(ctx, 2, shape, TN_F64, x);
        for (int i = 0; i < network[which].layers; i++) t = tn_mlp_forward(ctx, &layer[i], t);
        tn_tensor *loss = tn_mse(ctx, t, tn_tensor_from(ctx, 2, shape, TN_F64, y));
        if (tn_backward(ctx, loss) != TN_OK || tn_optim_step(optim) != TN_OK) break;
        error = tn_item(loss);
        tn_read(t, TN_F64, learned, POINTS);
    }
    tn_optim_destroy(optim);
    tn_params_destroy(params);
    return error;
}

int main(void)
{
    double  x[POINTS], y[POINTS], learned[NETWORKS][POINTS], error[CURVES][NETWORKS];
    char    why[TN_WHY], path[64];
    tn_ctx *ctx;
    if (tn_ctx_create(&(tn_desc){ .seed = 1, .dtype = TN_F64, .threads = 1 }, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    printf("mean squared error  bilinear    ReLU  SwiGLU  2 bilinear\n");
    for (int c = 0; c < CURVES; c++) {
        tn_image_series series[1 + NETWORKS] = {{ .name = c ? NULL : "the curve", .x = x, .y = y, .count = POINTS,
                                                  .kind = TN_IMAGE_SERIES_POINTS, .colour = 7 }};
        for (int i = 0; i < POINTS; i++) y[i] = curve_at(c, x[i] = (2 * i + 1.0) / POINTS - 1);
        for (int k = 0; k < NETWORKS; k++) {
            error[c][k] = learn(ctx, k, x, y, learned[k]);
            series[1 + k] = (tn_image_series){ .name = c ? NULL : network[k].name, .x = x, .y = learned[k], .count = POINTS,
                                               .colour = 1 + k };
        }
        tn_image *image = tn_image_plot(ctx, series, 1 + NETWORKS, &(tn_image_plot_desc){ .title = formula[c],
            .width = 410, .height = 270 });
        snprintf(path, sizeof path, "layers-%s.svg", curve_name[c]);
        tn_image_save_svg(image, path);
        if (tn_ctx_status(ctx) != TN_OK) {
            fprintf(stderr, "%s\n", tn_ctx_error(ctx));
            return 1;
        }
        printf("%-18s", curve_name[c]);
        for (int k = 0; k < NETWORKS; k++) printf("%*.4f", k == 3 ? 12 : k ? 8 : 10, error[c][k]);
        printf("\n");
    }
    printf("\n");
    for (int k = 0; k < NETWORKS; k++) {
        printf("%s follows:", network[k].name);
        for (int c = 0; c < CURVES; c++) if (error[c][k] < 0.001) printf(" %s", curve_name[c]);
        printf("\n");
    }
    tn_ctx_destroy(ctx);
    return 0;
}
