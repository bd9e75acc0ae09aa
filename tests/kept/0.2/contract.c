/* Products of many tensors, plans, and networks of tensors. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tensornet.h"

static int failures;

static void check(const char *what, double value, double expected, double within)
{
    const bool right = fabs(value - expected) <= within;
    printf("%-48s %.6g%s\n", what, value, right ? "" : "   FAIL");
    failures += !right;
}

static double at(const tn_tensor *t, int64_t i)
{
    double v[512] = {0};
    if (!t || tn_tensor_count(t) > 512 || tn_read(t, TN_F64, v, tn_tensor_count(t)) != TN_OK) return NAN;
    return v[i];
}

static tn_tensor *counting(tn_ctx *ctx, int rank, int64_t a, int64_t b, int64_t c)
{
    double        v[64];
    const int64_t shape[3] = {a, b, c};
    for (int i = 0; i < 64; i++) v[i] = i + 1;
    return tn_tensor_from(ctx, rank, shape, TN_F64, v);
}

static void products(tn_ctx *ctx)
{
    tn_tensor *a = counting(ctx, 2, 2, 3, 0), *b = counting(ctx, 2, 3, 2, 0), *t = counting(ctx, 3, 2, 3, 2), *pair[2] = {a, b};
    check("ij,jk->ik", at(tn_einsum(ctx, "ij,jk->ik", 2, pair), 3), 4 * 2 + 5 * 4 + 6 * 6, 0);
    check("a trace", tn_item(tn_einsum(ctx, "ij,ji->", 2, pair)), 22 + 64, 0);
    check("a mean over a label that is left out", at(tn_einsum(ctx, "ij->i", 1, &a), 1), 15, 0);
    const int la[2] = {7, 9}, lb[2] = {9, 4}, out[2] = {4, 7}, *labels[2] = {la, lb};
    check("labels that are integers", at(tn_einsum_labels(ctx, 2, pair, labels, 2, out), 1), 4 * 1 + 5 * 3 + 6 * 5, 0);
    check("tensordot, axes from 0", at(tn_tensordot(ctx, t, 1, b, 0), 0), 1 * 1 + 3 * 3 + 5 * 5, 0);
    check("tensordot, the last axis", at(tn_tensordot(ctx, a, -1, b, 0), 0), 22, 0);
    check("Khatri-Rao", at(tn_khatri_rao(ctx, b, b), 3), 2 * 4, 0);
    check("of rows", at(tn_khatri_rao_rows(ctx, a, a), 1), 2, 0);
    check("Kronecker", (double)tn_kronecker(ctx, a, b)->shape[1], 6, 0);
    check("mode product", (double)tn_mode_product(ctx, t, 1, a)->shape[1], 2, 0);
    tn_tensor *u = tn_unfold(ctx, t, 1);
    check("unfolded: the last axis is fastest", at(u, 1), 2, 0);
    check("and folded", at(tn_sub(ctx, tn_fold(ctx, u, 1, 3, t->shape), t), 7), 0, 0);

    const int64_t  sa[2] = {10, 200}, sb[2] = {200, 200}, sc[2] = {200, 5}, *shapes[3] = {sa, sb, sc};
    const int      ranks[3] = {2, 2, 2};
    tn_plan       *plan = tn_plan_create(ctx, "ij,jk,kl->il", 3, ranks, shapes, &(tn_plan_desc){.minimize = TN_PLAN_FLOPS});
    tn_plan_cost   cost = tn_plan_cost_of(plan);
    char           text[2048];
    check("steps", (double)cost.steps, 2, 0);
    check("the right side first", cost.flops, 2.0 * (200 * 200 * 5 + 10 * 200 * 5), 1e-9 * cost.flops);
    check("without a plan", cost.naive > 5 * cost.flops, 1, 0);
    check("as text", tn_plan_format(plan, text, sizeof text) > 0 && strstr(text, "ij,jk,kl->il") != NULL, 1, 0);
    tn_tensor *list[3] = {tn_full(ctx, 2, sa, 1), tn_full(ctx, 2, sb, 1), tn_full(ctx, 2, sc, 1)};
    check("run", at(tn_plan_run(plan, 3, list), 0), 40000, 1e-6);
    tn_plan_destroy(plan);
}

static void networks(tn_ctx *ctx)
{
    tn_params *ps = tn_params_create(ctx);
    tn_mlp     layer;
    tn_mlp_init(ps, "layer", &(tn_mlp_desc){.in = 3, .hidden = 4, .out = 2}, &layer);
    tn_tensor *x = counting(ctx, 2, 1, 3, 0), *pwv[3] = {layer.p, tn_mlp_encoder(&layer, 0), tn_mlp_encoder(&layer, 1)};
    const double y0 = at(tn_mlp_forward(ctx, &layer, x), 0);
    tn_cp  *cp = tn_cp_from_mlp(ctx, &layer);
    tn_net *net = tn_net_create(ctx, "oh,hi,hj->o|ij", 3, pwv, TN_NET_COPY), *other = tn_net_from_cp(ctx, cp);
    check("a layer as a net", at(tn_net_apply(ctx, net, x), 0), y0, 1e-12);
    check("and as an operator", at(tn_cp_apply(ctx, cp, x), 0), y0, 1e-12);
    double cosine = 0, norm = 0, inner = 0;
    check("cosine", tn_net_cosine(net, other, TN_NET_SYMMETRIC, &cosine) == TN_OK ? cosine : 0, 1, 1e-12);
    check("norm", tn_net_norm(net, TN_NET_AS_GIVEN, &norm) == TN_OK && norm > 0, 1, 0);
    check("inner product", tn_net_inner(net, net, TN_NET_AS_GIVEN, &inner) == TN_OK ? inner : 0, norm * norm, 1e-12);
    check("legs", net->legs * 100 + net->outs * 10 + net->nodes, 213, 0);
    tn_tensor *t = tn_net_contract(net), *u = tn_full(ctx, 1, (const int64_t[1]){2}, 1);
    check("the tensor", (double)(t->shape[0] * 100 + t->shape[1] * 10 + t->shape[2]), 233, 0);
    tn_tensor *q = tn_net_interaction(net, u);
    check("an interaction matrix is symmetric", at(q, 1), at(q, 3), 1e-14);
    check("that of the operator", at(tn_cp_interaction(cp, u), 1), at(q, 1), 1e-13);
    tn_eigenpairs e;
    check("eigenpairs", tn_net_eigen(net, u, 0, &e), TN_OK, 0);
    check("trace", at(e.values, 0) + at(e.values, 1) + at(e.values, 2), at(q, 0) + at(q, 4) + at(q, 8), 1e-12);
    tn_eigenpairs_destroy(&e);
    tn_net *fixed = tn_net_fix(net, 1, tn_reshape(x, 1, (const int64_t[1]){3}));
    check("one leg less", fixed->legs, 1, 0);
    check("each leg its own vector", at(tn_net_apply_each(ctx, net, (tn_tensor *[2]){x, x}), 0), y0, 1e-12);
    const tn_cp *stack[1] = {cp};
    check("a stack of one", at(tn_net_apply(ctx, tn_net_from_stack(ctx, 1, stack, false), x), 0), y0, 1e-12);
    tn_net *folded = tn_net_fold_in(net, TN_NET_ALL, tn_eye(ctx, 3), NULL);
    check("folded with the identity", at(tn_net_apply(ctx, tn_net_fold_out(folded, tn_eye(ctx, 2)), x), 0), y0, 1e-12);
    tn_coefficients c;
    check("largest coefficients", tn_net_top(net, 3, &c), TN_OK, 0);
    check("in descending order", fabs(at(c.values, 0)) >= fabs(at(c.values, 1)), 1, 0);
    tn_coefficients_destroy(&c);
    tn_tensor *core[3] = {counting(ctx, 3, 1, 2, 2), counting(ctx, 3, 2, 2, 2), counting(ctx, 3, 2, 2, 1)};
    tn_net    *chain = tn_net_from_cores(ctx, 3, core);
    check("a chain of cores", chain->legs, 3, 0);
    const int one_input[3] = {0, 0, 0};
    tn_tt    *tt = tn_tt_create(ctx, 3, core);
    check("a train as a net of one input", tn_net_from_tt(ctx, tt, one_input)->in[2].input, 0, 0);
    check("a plan of it", tn_plan_cost_of(tn_net_plan(chain, NULL)).steps > 0, 1, 0);
    tn_tensor *eye = tn_eye(ctx, 3);
    check("a function of a function", tn_net_compose(net, tn_net_create(ctx, "oi->o|i", 1, &eye, TN_NET_COPY))->legs, 2, 0);
}

int main(void)
{
    tn_ctx *ctx;
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64, .threads = 1}, &ctx, NULL) != TN_OK) return 1;
    products(ctx);
    networks(ctx);
    check("no error is left", tn_ctx_status(ctx), TN_OK, 0);
    if (tn_ctx_status(ctx) != TN_OK) puts(tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return failures != 0;
}
