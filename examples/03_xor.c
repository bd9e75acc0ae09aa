/* 03_xor.c - XOR by hand: a bilinear layer with weights that we choose, and its interaction matrix

   cc -O2 -I. examples/03_xor.c -o 03_xor -lm && ./03_xor

   A bilinear layer multiplies two linear maps of its input, y = P ((W x) * (V x)). XOR of two bits is (a - b)(a - b), so one
   hidden unit with W = V = [1 -1] and P = [1] computes it. Every such layer is x^T Q x with a symmetric matrix Q for each
   output, its interaction matrix: Q[a,b] says how much the product a b counts. */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

static void show(const char *what, const tn_tensor *t)
{
    char text[256];
    if (tn_tensor_format(t, text, sizeof text) >= 0) printf("%s\n%s\n\n", what, text);
}

int main(void)
{
    const float   bits[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, wv[2][2] = {{1, -1}, {1, -1}}, p = 1;
    const float   other[3][3] = {{0, -1, .5f}, {-1, 0, .5f}, {.5f, .5f, 0}}, units[2][2] = {{1, 0}, {0, 1}};
    char          why[TN_WHY];
    tn_ctx       *ctx;
    tn_mlp        layer;
    tn_quadratic  second;
    if (tn_ctx_create(NULL, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, 4, 2), *unit[2];
    tn_write(x, TN_F32, bits, 8);
    for (int i = 0; i < 2; i++) tn_write(unit[i] = tn_tensor_1d(ctx, TN_REAL, 2), TN_F32, units[i], 2);

    tn_params *params = tn_params_create(ctx);
    tn_mlp_init(params, "xor", &(tn_mlp_desc){ .in = 2, .hidden = 1, .out = 1 }, &layer);
    for (int e = 0; e < tn_mlp_encoders(layer.desc.kind); e++)          /* W, then V */
        tn_write(tn_mlp_encoder(&layer, e), TN_F32, wv[e], 2);
    tn_write(layer.p, TN_F32, &p, 1);
    tn_tensor *y = tn_mlp_forward(ctx, &layer, x);
    show("[a b]:", x);
    show("a xor b:", y);

    /* The same by single operations: both linear maps in one product, then the product of the two halves of each row. */
    tn_tensor *by_hand = tn_prod_parts(ctx, tn_affine(ctx, x, tn_reshape_2d(layer.w, 2, 2), NULL), 2);

    tn_cp *cp = tn_cp_from_mlp(ctx, &layer);                /* the layer as one tensor, its operator */
    show("Q on [a b]: a a + b b - 2 a b", tn_cp_interaction_of(cp, 0));

    /* The two inputs of x^T Q x may differ: [1 0] on the left and [0 1] on the right give the entry Q[a,b]. If only the left
       input is fixed, at [1 0], a linear function of the right one remains: row a of Q. */
    show("Q[a,b]:", tn_cp_apply_each(ctx, cp, unit));
    show("row a of Q:", tn_cp_dense(tn_cp_fix(cp, 0, unit[0])));

    /* For bits a a = a, so another matrix gives the same gate: a + b - 2 a b, on [a b 1]. The parameter of this second layer
       is the tensor itself. */
    tn_quadratic_init(params, "other", &(tn_quadratic_desc){ .in = 2, .out = 1, .bias = true }, &second);
    tn_write(second.t, TN_F32, other, 9);
    tn_tensor *same = tn_quadratic_forward(ctx, &second, x);
    tn_cp     *other_cp = tn_cp_from_quadratic(ctx, &second);
    double     norm = 0, other_norm = 0, apart = tn_item(tn_mse(ctx, y, same)) + tn_item(tn_mse(ctx, y, by_hand));
    show("another Q, on [a b 1]:", tn_cp_interaction_of(other_cp, 0));
    tn_cp_norm(cp, &norm);
    tn_cp_norm(other_cp, &other_norm);
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("squared_norms: %.1f %.1f\n", norm * norm, other_norm * other_norm);
    printf("same_gate: %s\n", apart == 0 ? "yes" : "no");
    tn_ctx_destroy(ctx);
    return 0;
}
