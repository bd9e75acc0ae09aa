/* 12_network.c - functions as networks of tensors: composed, planned, applied and compared, never formed as one tensor

   cc -O2 -I. examples/12_network.c -o 12_network -lm && ./12_network

   A bilinear layer is y_o = sum_hij P[o,h] W[h,i] V[h,j] x_i x_j. Two of them, one after the other, are a function of order
   4, whose tensor T[o,i,j,k,l] has 16 * 24^4 = 5,308,416 numbers here. A tn_net keeps the nine matrices instead, and
   contracts them in a good order only when a number is asked for. */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { IN = 24, HIDDEN = 40, MID = 20, OUT = 16, ROWS = 8, BITS = 10 };

static tn_tensor *matrix(tn_ctx *ctx, int64_t rows, int64_t columns)
{
    return tn_normal(ctx, 2, (int64_t[]){rows, columns}, 0, 0.3);
}

/* P ((W x) * (V x)) */
static tn_tensor *layer(tn_ctx *ctx, tn_tensor *const *pwv, tn_tensor *x)
{
    tn_tensor *w = tn_matmul(ctx, x, tn_transpose(pwv[1], 0, 1)), *v = tn_matmul(ctx, x, tn_transpose(pwv[2], 0, 1));
    return tn_matmul(ctx, tn_mul(ctx, w, v), tn_transpose(pwv[0], 0, 1));
}

int main(void)
{
    static char text[3000];
    char        why[TN_WHY];
    tn_desc     desc = {.dtype = TN_F64};
    tn_ctx     *ctx;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }

    /* The labels after "->" are the legs: an output, and after each '|' the legs of one input, here x twice. Composed, each
       input of the outer function is a copy of the inner one. */
    tn_tensor *first[3] = {matrix(ctx, MID, HIDDEN), matrix(ctx, HIDDEN, IN), matrix(ctx, HIDDEN, IN)};
    tn_tensor *second[3] = {matrix(ctx, OUT, HIDDEN), matrix(ctx, HIDDEN, MID), matrix(ctx, HIDDEN, MID)};
    tn_net    *inner = tn_net_create(ctx, "oh,hi,hj->o|ij", 3, first, TN_NET_COPY);
    tn_net    *outer = tn_net_create(ctx, "oh,hi,hj->o|ij", 3, second, TN_NET_COPY);
    tn_net    *stack = tn_net_compose(outer, inner);

    /* The function is the two layers. */
    tn_tensor *x = matrix(ctx, ROWS, IN), *y = layer(ctx, second, layer(ctx, first, x));
    tn_tensor *gap = tn_sub(ctx, tn_net_apply(ctx, stack, x), y);
    double     error = tn_item(tn_sum(ctx, tn_mul(ctx, gap, gap))) / tn_item(tn_sum(ctx, tn_mul(ctx, y, y)));

    /* A plan says what the whole tensor would cost, if it were wanted. */
    tn_plan *plan = tn_net_plan(stack, NULL);
    if (tn_plan_format(plan, text, sizeof text) >= 0) printf("%s\n", text);

    /* Norms and cosines contract nets with each other; T itself is not formed. Exchanging W and V changes the tensor of a
       layer, but not its function. */
    tn_tensor *exchanged[3] = {first[0], first[2], first[1]};
    tn_net    *twin = tn_net_create(ctx, "oh,hi,hj->o|ij", 3, exchanged, TN_NET_COPY), *same = tn_net_compose(outer, twin);
    double     norm, cosine, as_given;
    tn_net_norm(stack, TN_NET_SYMMETRIC, &norm);
    tn_net_cosine(stack, same, TN_NET_SYMMETRIC, &cosine);
    tn_net_cosine(stack, same, TN_NET_AS_GIVEN, &as_given);

    /* Layer by layer it takes one operator for each layer, and no net: cheap for any depth, and also of the tensors as given. */
    tn_cp *a[2] = {tn_cp_create(ctx, 2, first[0], first + 1, TN_CP_INPUT_PLAIN),
                   tn_cp_create(ctx, 2, second[0], second + 1, TN_CP_INPUT_PLAIN)};
    tn_cp *b[2] = {tn_cp_create(ctx, 2, exchanged[0], exchanged + 1, TN_CP_INPUT_PLAIN), a[1]};
    tn_cp_stack_result layers;
    tn_cp_stack_inner((const tn_cp *const *)a, (const tn_cp *const *)b, 2,
                      &(tn_cp_stack_desc){.method = TN_CP_STACK_TREE}, &layers);

    /* A sum of functions is a list of nets: |a + b|^2 = <a,a> + 2 <a,b> + <b,b>. Of one function twice it is 4 |a|^2. */
    double ab, bb;
    tn_net_inner(stack, same, TN_NET_SYMMETRIC, &ab);
    tn_net_inner(same, same, TN_NET_SYMMETRIC, &bb);
    double sum = norm * norm + 2 * ab + bb;

    /* A ring of matrices is a net as well, whose inputs are different: f = tr(A_0[x_0] A_1[x_1] .. A_9[x_9]). With the identity
       for a zero and an exchange of two states for a one it is 2 if the number of ones is even, and 0 if it is odd. */
    const double state[2][2][2] = {{{1, 0}, {0, 1}}, {{0, 1}, {1, 0}}}, units[2][2] = {{1, 0}, {0, 1}};
    tn_tensor   *core[BITS], *bit[BITS];
    for (int k = 0; k < BITS; k++) {
        core[k] = tn_tensor_from(ctx, 3, (int64_t[]){2, 2, 2}, TN_F64, state);
        bit[k] = tn_tensor_from(ctx, 1, (int64_t[]){2}, TN_F64, units[k % 3 == 0]);
    }
    tn_net *ring = tn_net_from_cores(ctx, BITS, core);
    double  even = tn_item(tn_net_apply_each(ctx, ring, bit));
    tn_net_destroy(ring);

    /* Two legs fixed at one x leave a matrix for each output: what the other two see beside this x. */
    tn_tensor  *one = tn_reshape(tn_slice(x, 0, 0, 1), 1, (int64_t[]){IN});
    tn_tensor  *direction = tn_full(ctx, 1, (int64_t[]){OUT}, 1);
    tn_net     *frozen = tn_net_fix(tn_net_fix(stack, 3, one), 2, one);
    tn_eigenpairs    eigen;
    if (tn_net_eigen(frozen, direction, 1, &eigen) != TN_OK || tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("error_of_the_net: %.1e\n", error < 1e-24 ? 0 : error);
    printf("nodes: %d\n", stack->nodes);
    printf("norm: %.6f\n", norm);
    printf("cosine_of_equal_functions: %.12f\n", cosine);
    printf("cosine_of_their_tensors: %.6f\n", as_given);
    printf("cosine_layer_by_layer: %.6f\n", layers.cosine);
    printf("square_of_the_sum_over_that_of_one: %.12f\n", sum / (norm * norm));
    printf("parity_of_1001001001: %s\n", even > 1 ? "even" : "odd");
    printf("largest_eigenvalue_beside_x: %.6f\n", tn_item(eigen.values));
    tn_eigenpairs_destroy(&eigen);
    tn_ctx_destroy(ctx);                                    /* frees the nets and the plan */
    return 0;
}
