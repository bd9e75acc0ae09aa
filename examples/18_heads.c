/* 18_heads.c - attention layers as tensors: the same head as a sum, as a network, as a train, and as a walk with a memory

   cc -O2 -I. examples/18_heads.c -o 18_heads -lm && ./18_heads

   In bilinear attention what position s adds to position t is a polynomial of the two vectors, twice x_t and three times
   x_s: a tensor with six axes, five inputs and an output. Nothing is left out, so that two layers can be compared without
   any text. Linear attention can also be computed by a product of matrices, one for each position: a layer that walks along
   the text, and remembers all that it has read in one vector. Pearce et al. 2024, Zunkovic 2022 */
#include <math.h>
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { DIM = 6, HEADS = 2, T = 5, KEY = 3 };

/* |a - b| / |a| */
static double apart(tn_ctx *ctx, tn_tensor *a, tn_tensor *b)
{
    return sqrt(tn_item(tn_mse(ctx, a, b)) / tn_item(tn_mean(ctx, tn_mul(ctx, a, a))));
}

static tn_tensor *at(tn_tensor *x, int64_t t) { return tn_reshape(tn_slice(x, 1, t, t + 1), 1, (int64_t[]){-1}); }

int main(void)
{
    char         why[TN_WHY];
    double       cosine, rounded, first[DIM] = {1};
    int32_t      index[6];
    tn_attention layer;
    tn_ctx      *ctx;
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64, .seed = 2}, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_params *params = tn_params_create(ctx);
    tn_attention_init(params, "heads", &(tn_attention_desc){.dim = DIM, .heads = HEADS, .kind = TN_ATTENTION_BILINEAR,
        .no_rope = true}, &layer);
    tn_tensor *x = tn_tensor_keep(tn_normal(ctx, 3, (int64_t[]){1, T, DIM}, 0, 1)), *sum = NULL;

    /* The last position, as a sum over all that it sees. The layer computes the same. */
    tn_net *net = tn_net_from_attention(ctx, &layer, 0);
    for (int s = 0; s < T; s++) {
        tn_tensor *xt = at(x, T - 1), *xs = at(x, s), *part = tn_net_apply_each(ctx, net, (tn_tensor *[]){xt, xt, xs, xs, xs});
        sum = s == 0 ? part : tn_add(ctx, sum, part);
    }
    double by_pairs = apart(ctx, at(tn_attention_forward(ctx, &layer, x, NULL), T - 1), sum);

    /* The same tensor as a train, whose axes are x_t, x_s, x_t, x_s, x_s and y. Its bonds can be made smaller. */
    const int takes[6] = {0, 1, 0, 1, 1, -1};
    tn_tt    *tt = tn_tt_from_attention(ctx, &layer, 0), *less = tn_tt_round(tt, &(tn_tt_desc){.eps = 0.3});
    tn_net_cosine(net, tn_net_from_tt(ctx, tt, takes), TN_NET_SYMMETRIC, &cosine);
    tn_net_cosine(net, tn_net_from_tt(ctx, less, takes), TN_NET_SYMMETRIC, &rounded);

    /* With its first two coordinates exchanged the stream gives other weights, and another tensor. Exchanged once more, in
       inputs and output, it is the first one again. */
    double swap[DIM][DIM] = {{0, 1}, {1, 0}}, moved, back;
    for (int i = 2; i < DIM; i++) swap[i][i] = 1;
    tn_tensor *e = tn_tensor_from(ctx, 2, (int64_t[]){DIM, DIM}, TN_F64, swap);
    tn_net    *other = tn_net_fold_out(tn_net_fold_in(net, TN_NET_ALL, e, NULL), e);
    tn_net_cosine(net, other, TN_NET_SYMMETRIC, &moved);
    other = tn_net_fold_out(tn_net_fold_in(other, TN_NET_ALL, e, NULL), e);
    back = apart(ctx, tn_net_contract(net), tn_net_contract(other));

    /* Which five numbers speak loudest for the first output? And beside the key x_0 it is a quadratic form of the query. */
    tn_coefficients top;
    tn_tensor      *row = tn_tensor_from(ctx, 2, (int64_t[]){1, DIM}, TN_F64, first), *x0 = at(x, 0), *x1 = at(x, 1);
    tn_net_top(tn_net_fold_out(net, row), 1, &top);
    tn_read(top.index, TN_I32, index, 6);
    tn_net *fixed = tn_net_fix(tn_net_fix(tn_net_fix(net, 4, x0), 3, x0), 2, x0);
    tn_tensor *matrix = tn_net_interaction(fixed, tn_reshape(row, 1, (int64_t[]){DIM}));
    double  form = tn_item(tn_einsum(ctx, "i,ij,j->", 3, (tn_tensor *[]){x1, matrix, x1}));
    double  form_apart = fabs(form / tn_item(tn_slice(tn_net_apply(ctx, fixed, x1), 0, 0, 1)) - 1);

    /* Linear attention y_t = sum_s v_s (k_s.q_t) over all s before t, of vectors of length 1, as a walk along the text. At
       each position the layer has a matrix that maps x_t to y_t, and one vector is all that it has to remember. */
    tn_tn_attention walk;
    tn_tensor *unit = tn_scale(ctx, tn_rmsnorm(ctx, x, NULL, 0), 1 / sqrt(DIM)), *map = tn_full(ctx, 2, (int64_t[]){DIM, DIM}, 0);
    tn_tensor *q = tn_normal(ctx, 2, (int64_t[]){KEY, DIM}, 0, 1), *k = tn_normal(ctx, 2, (int64_t[]){KEY, DIM}, 0, 1);
    tn_tensor *v = tn_normal(ctx, 2, (int64_t[]){DIM, DIM}, 0, 1), *y = NULL;
    tn_tn_attention_from_linear_attention(params, "walk", q, k, v, true, &walk);
    tn_tensor *state = tn_tn_attention_state(ctx, &walk, 1), *maps = tn_tn_attention_weights(ctx, &walk, unit);
    for (int t = 0; t < T; t++) y = tn_tn_attention_decode(ctx, &walk, tn_slice(unit, 1, t, t + 1), state);
    for (int s = 0; s < T - 1; s++)
        map = tn_add(ctx, map, tn_einsum(ctx, "vi,i,kj,j,kl->vl", 5, (tn_tensor *[]){v, at(unit, s), k, at(unit, s), q}));
    double map_apart = apart(ctx, map, tn_reshape(tn_slice(maps, 1, T - 1, T), 2, (int64_t[]){DIM, DIM}));
    double decoded = apart(ctx, tn_slice(tn_tn_attention_forward(ctx, &walk, unit), 1, T - 1, T), y);
    tn_net *third = tn_net_from_tn_attention(ctx, &walk, 3, 2);        /* and a tensor: of vectors 0, 0, 1, 1 and 2 */
    tn_tensor *leg[5] = {at(unit, 0), at(unit, 0), at(unit, 1), at(unit, 1), at(unit, 2)};
    double walked = apart(ctx, at(tn_tn_attention_forward(ctx, &walk, unit), 2), tn_net_apply_each(ctx, third, leg));
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("sum_over_positions: %s\n", by_pairs < 1e-12 ? "the layer" : "something else");
    printf("cosine_of_network_and_train: %.9f\n", cosine);
    printf("bond: %d, rounded: %d, cosine: %.3f\n", (int)tt->core[1]->shape[0], (int)less->core[1]->shape[0], rounded);
    printf("cosine_after_an_exchange: %.3f\nexchanged_twice: %s\n", moved, back < 1e-12 ? "the same" : "different");
    printf("largest_product_in_y0: x_t[%d] x_t[%d] x_s[%d] x_s[%d] x_s[%d]\n", (int)index[1], (int)index[2], (int)index[3],
           (int)index[4], (int)index[5]);
    printf("quadratic_form_beside_x0: %s\n", form_apart < 1e-12 ? "yes" : "no");
    printf("map_of_the_last_position: %s\n", map_apart < 1e-12 ? "sum of v k^T q" : "something else");
    printf("decoded: %s, with %d numbers\n", decoded < 1e-12 ? "the same" : "different", (int)state->shape[1]);
    printf("walk_as_a_network: %s\n", walked < 1e-12 ? "the same" : "different");
    tn_coefficients_destroy(&top);
    tn_ctx_destroy(ctx);
    return 0;
}
