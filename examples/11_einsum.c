/* 11_einsum.c - products of many tensors: write down the sum, let the library find the order, look at the plan, run it

   cc -O2 -I. examples/11_einsum.c -o 11_einsum -lm && ./11_einsum

   A bilinear layer y = P ((W x) * (V x)) is a tensor B[o,i,j] = sum_h P[o,h] W[h,i] V[h,j]. Its squared norm is a sum over o,
   i, j and over h twice: six operands, and more than a thousand million terms if one adds them as they are written. */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { OUT = 32, IN = 64, HIDDEN = 96 };

int main(void)
{
    static char    text[2000];
    const int64_t  p_shape[2] = {OUT, HIDDEN}, w_shape[2] = {HIDDEN, IN};
    char           why[TN_WHY];
    tn_desc        desc = {.dtype = TN_F64};
    tn_ctx        *ctx;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_tensor *p = tn_normal(ctx, 2, p_shape, 0, 1), *w = tn_normal(ctx, 2, w_shape, 0, 1), *v = tn_normal(ctx, 2, w_shape, 0, 1);

    /* One call is enough: letters name the axes, and what is not in the result is summed. */
    tn_tensor *b = tn_einsum(ctx, "oh,hi,hj->oij", 3, (tn_tensor *[]){p, w, v});
    double     dense = tn_item(tn_einsum(ctx, "oij,oij->", 2, (tn_tensor *[]){b, b}));

    /* A plan is made once from shapes alone, and run as often as needed. This one never makes B: it multiplies three pairs of
       factors to Gram matrices first. */
    const char    *norm = "oh,hi,hj,ok,ki,kj->";
    const int      ranks[6] = {2, 2, 2, 2, 2, 2};
    const int64_t *shapes[6] = {p_shape, w_shape, w_shape, p_shape, w_shape, w_shape};
    tn_plan       *plan = tn_plan_create(ctx, norm, 6, ranks, shapes, NULL);
    tn_tensor     *operands[6] = {p, w, v, p, w, v};
    if (tn_plan_format(plan, text, sizeof text) >= 0) printf("%s\n", text);
    double planned = tn_item(tn_plan_run(plan, 6, operands));

    /* With a limit for intermediate results some labels are divided, and the slices are computed one after the other. */
    tn_plan_desc limit = {.max_bytes = 32 * 1024};
    tn_plan     *small = tn_plan_create(ctx, norm, 6, ranks, shapes, &limit);
    tn_plan_cost cost = tn_plan_cost_of(small);
    double       sliced = tn_item(tn_plan_run(small, 6, operands));

    /* It is an op like any other: gradients flow through it. That of |B|^2 in the direction of P itself is 2 |B|^2. */
    tn_watch(p);
    tn_record(ctx);
    tn_backward(ctx, tn_plan_run(plan, 6, operands));
    double slope = tn_item(tn_einsum(ctx, "oh,oh->", 2, (tn_tensor *[]){p, p->grad}));

    /* A program that makes its expressions itself writes numbers in place of letters, as many as it needs: here a ring of
       100 matrices, whose result has no label, the trace of their product. */
    enum { RING = 100 };
    tn_tensor     *matrix[RING], *product = NULL;
    int            pair[RING][2], two[RING];
    const int     *labels[RING];
    const int64_t *extents[RING], square[2] = {4, 4};
    for (int k = 0; k < RING; k++) {
        matrix[k] = tn_normal(ctx, 2, square, 0, 0.5);
        product = k == 0 ? matrix[k] : tn_matmul(ctx, product, matrix[k]);
        pair[k][0] = k, pair[k][1] = (k + 1) % RING, two[k] = 2;
        labels[k] = pair[k], extents[k] = square;
    }
    double   trace = tn_item(tn_einsum(ctx, "ii->", 1, &product));
    double   ring = tn_item(tn_einsum_labels(ctx, RING, matrix, labels, 0, NULL));
    tn_plan *once = tn_plan_create_labels(ctx, RING, two, extents, labels, 0, NULL, NULL);
    double   again = tn_item(tn_plan_run(once, RING, matrix));
    tn_plan_destroy(once);
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    tn_einsum(ctx, "oh,hi,ij->oj", 3, (tn_tensor *[]){p, w, v});
    printf("a mistake: %s\n\n", tn_ctx_error(ctx));

    printf("planned_over_dense: %.12f\n", planned / dense);
    printf("sliced_over_dense: %.12f\n", sliced / dense);
    printf("slices: %lld\n", (long long)cost.slices);
    printf("bytes_of_a_slice: %zu\n", cost.bytes);
    printf("slope_over_norm: %.12f\n", slope / dense);
    printf("ring_over_trace: %.9f, with a plan: %.9f\n", ring / trace, again / trace);
    tn_ctx_destroy(ctx);
    return 0;
}
