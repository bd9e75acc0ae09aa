/* Layers of sequences: matrix product states, trains as layers, tensor-network attention, attention with a cache. */
#include <math.h>
#include <stdio.h>
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

static tn_tensor *waves(tn_ctx *ctx, int rank, int64_t a, int64_t b, int64_t c)
{
    double        v[128];
    const int64_t shape[3] = {a, b, c};
    for (int i = 0; i < 128; i++) v[i] = 0.5 + 0.5 * sin(i + 1.0);
    return tn_tensor_from(ctx, rank, shape, TN_F64, v);
}

static void product_states(tn_ctx *ctx, tn_params *ps)
{
    tn_mps     mps, born;
    tn_tensor *x = waves(ctx, 2, 3, 6, 0), *logs = NULL;
    check("mps", tn_mps_init(ps, "mps", &(tn_mps_desc){.sites = 6, .bond = 4, .out = 2}, &mps), TN_OK, 0);
    tn_tensor *y = tn_mps_forward(ctx, &mps, x, NULL), *scaled = tn_mps_forward(ctx, &mps, x, &logs);
    check("f(x) = exp(logs) y", at(y, 0), exp(at(logs, 0)) * at(scaled, 0), 1e-12);
    tn_tt *tt = tn_tt_from_mps(ctx, &mps);
    check("its train has an axis more", (double)tt->count, 7, 0);
    check("written back", tn_mps_assign_tt(&mps, tt), TN_OK, 0);
    check("without a change", at(tn_mps_forward(ctx, &mps, x, NULL), 3), at(y, 3), 1e-12);
    check("features of x: 1 - x, x", at(tn_local_features(ctx, x, TN_LOCAL_LINEAR, 2), 0), 1 - at(x, 0), 1e-15);

    const int32_t id[12] = {0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0};
    const int64_t ids[2] = {2, 6};
    check("born", tn_mps_init(ps, "born", &(tn_mps_desc){.sites = 6, .bond = 3, .map = TN_LOCAL_IDS, .label = TN_MPS_FIRST,
                                                         .random = true}, &born), TN_OK, 0);
    tn_tensor *t = tn_tensor_from(ctx, 2, ids, TN_I32, id), *p = tn_mps_log_probability(ctx, &born, t);
    const double f = at(tn_mps_forward(ctx, &born, t, NULL), 0), z = tn_item(tn_mps_log_partition(ctx, &born));
    check("ln p = 2 ln |f| - ln Z", at(p, 0), 2 * log(fabs(f)) - z, 1e-9);
    double norm = 0;
    tn_tt_log_norm(tn_tt_from_mps(ctx, &born), &norm);
    check("ln Z is twice the log of the norm", z, 2 * norm, 1e-9);

    double error = -1;
    tn_tensor *phi = tn_local_features(ctx, x, TN_LOCAL_LINEAR, 2);
    tn_tt     *fit = tn_tt_fit(tt, 3, phi, waves(ctx, 2, 3, 2, 0), &(tn_tt_fit_desc){.sweeps = 2, .max_bond = 3}, &error);
    check("three examples are fitted", fit ? error : NAN, 0, 1e-2);
}

static void trains(tn_ctx *ctx, tn_params *ps)
{
    tn_tt_linear   layer;
    tn_tt_linear_desc d = {.count = 2, .in = {2, 3}, .out = {3, 2}, .bond = 2};
    check("a linear layer as a train", tn_tt_linear_init(ps, "tt", &d, &layer), TN_OK, 0);
    tn_tensor *x = waves(ctx, 2, 2, 6, 0), *y = tn_tt_linear_forward(ctx, &layer, x);
    tn_tt     *tt = tn_tt_from_tt_linear(ctx, &layer);
    tn_tensor *w = tn_tt_matrix(tt, d.out, d.in);
    check("its matrix", at(tn_affine(ctx, x, w, NULL), 7), at(y, 7), 1e-12);
    tn_tt *again = tn_tt_from_matrix(ctx, w, 2, d.out, d.in, NULL);
    check("decomposed again", tn_tt_linear_assign_tt(&layer, again), TN_OK, 0);
    check("the same layer", at(tn_tt_linear_forward(ctx, &layer, x), 7), at(y, 7), 1e-12);
    tn_tt *v = tn_tt_svd(ctx, tn_reshape(tn_slice(x, 0, 0, 1), 1, (const int64_t[1]){6}), 2, d.in, NULL);
    check("applied to a train", at(tn_tt_dense(tn_tt_apply(tt, v)), 1), at(y, 1), 1e-12);

    tn_mlp mlp;
    tn_mlp_init(ps, "mlp", &(tn_mlp_desc){.in = 3, .hidden = 2, .out = 2}, &mlp);
    check("an operator as a train of three axes", (double)tn_tt_from_cp(ctx, tn_cp_from_mlp(ctx, &mlp), 1)->core[1]->shape[1], 2, 0);
}

static void sites(tn_ctx *ctx, tn_params *ps)
{
    tn_tn_attention layer, exact;
    tn_deep         deep;
    tn_tensor      *x = waves(ctx, 3, 2, 5, 2);
    check("TN attention", tn_tn_attention_init(ps, "tn", &(tn_tn_attention_desc){.in = 2, .bond = 3}, &layer), TN_OK, 0);
    tn_tensor *y = tn_tn_attention_forward(ctx, &layer, x), *w = tn_tn_attention_weights(ctx, &layer, x);
    check("y_0 = W(0) x_0", at(w, 0) * at(x, 0) + at(w, 1) * at(x, 1), at(y, 0), 1e-12);
    const int rule = 110;
    tn_rule_reading r;
    check("rule 110", tn_tn_attention_from_rules(ps, "rule", &rule, 1, TN_BOUNDARY_CLOSED, &exact), TN_OK, 0);
    check("read again", tn_tn_attention_rule(ctx, &exact, 5, &r) == TN_OK ? r.rule : -1, 110, 0);
    tn_deep_desc d = {.vocab = 5, .dim = 3, .bond = 4, .out = 5, .causal = true, .head = TN_DEEP_SITES};
    check("a deep network", tn_deep_init(ps, "deep", &d, &deep), TN_OK, 0);
    const int32_t id[6] = {1, 4, 0, 2, 2, 3};
    const int64_t all[2] = {1, 6}, one[2] = {1, 1};
    y = tn_deep_forward(ctx, &deep, tn_tensor_from(ctx, 2, all, TN_I32, id));
    tn_tensor *state = tn_deep_state(ctx, &deep, 1), *z = NULL;
    for (int i = 0; i < 6; i++) z = tn_deep_decode(ctx, &deep, tn_tensor_from(ctx, 2, one, TN_I32, id + i), state);
    check("site by site", at(z, 4), at(y, 29), 1e-12);
}

static void attention(tn_ctx *ctx, tn_params *ps)
{
    tn_attention  layer;
    const int64_t T = 6;
    tn_tensor    *x = waves(ctx, 3, 1, T, 8);
    tn_attention_desc d = {.dim = 8, .heads = 2, .kind = TN_ATTENTION_BILINEAR};
    check("attention", tn_attention_init(ps, "attn", &d, &layer), TN_OK, 0);
    check("d_v: dim / heads", (double)layer.desc.d_v, 4, 0);
    check("its kind", tn_attention_kind_name(layer.desc.kind)[0], 'b', 0);
    tn_tensor *y = tn_attention_forward(ctx, &layer, x, NULL), *z = NULL;
    tn_attention_cache *cache = tn_attention_cache_create(ctx, &layer, 1, T);
    for (int64_t t = 0; t < T; t++) z = tn_attention_decode(ctx, &layer, tn_slice(x, 1, t, t + 1), cache, NULL);
    check("position by position", at(z, 7), at(y, T * 8 - 1), 1e-12);
    check("positions in the cache", (double)tn_attention_cache_past(cache), (double)T, 0);
    check("bytes", tn_attention_cache_bytes(cache) > 0, 1, 0);
    tn_attention_cache_reset(cache);
    check("emptied", (double)tn_attention_cache_past(cache), 0, 0);
    tn_attention_cache_destroy(cache);
    check("the matrix of a head", (double)tn_attention_head(&layer, 1, TN_HEAD_Q2)->shape[0], 4, 0);
    check("a pattern", (double)tn_attention_pattern(ctx, &layer, x)->rank, 4, 0);
    check("as a net of five legs", tn_net_from_attention(ctx, &layer, 1)->legs, 5, 0);
    check("as a train of six axes", (double)tn_tt_from_attention(ctx, &layer, 1)->count, 6, 0);

    tn_embedding table;
    tn_norm      norm;
    tn_quadratic quadratic;
    tn_modifier  modifier;
    const int32_t id[2] = {3, 1};
    const int64_t two[1] = {2};
    tn_embedding_init(ps, "table", &(tn_embedding_desc){.count = 4, .dim = 8}, &table);
    tn_norm_init(ps, "norm", &(tn_norm_desc){.dim = 8, .kind = TN_NORM_LAYER, .bias = true}, &norm);
    tn_quadratic_init(ps, "quadratic", &(tn_quadratic_desc){.in = 8, .out = 3}, &quadratic);
    tn_modifier_init(ps, "modifier", &(tn_modifier_desc){.in = 3, .hidden = 4}, &modifier);
    tn_tensor *e = tn_embedding_forward(ctx, &table, tn_tensor_from(ctx, 1, two, TN_I32, id)), *penalty = NULL;
    tn_tensor *n = tn_norm_forward(ctx, &norm, e), *q = tn_quadratic_forward(ctx, &quadratic, n);
    check("mean of a normed row", tn_item(tn_mean(ctx, n)), 0, 1e-12);
    check("a quadratic layer is an operator", at(tn_cp_apply(ctx, tn_cp_from_quadratic(ctx, &quadratic), n), 2), at(q, 2), 1e-11);
    tn_tensor *m = tn_modifier_forward(ctx, &modifier, q, &penalty);
    check("nothing is modified at first", tn_item(penalty), 0, 0);
    check("a modifier is one, too", at(tn_cp_apply(ctx, tn_cp_from_modifier(ctx, &modifier), q), 5), at(m, 5), 1e-11);
}

int main(void)
{
    tn_ctx *ctx;
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64, .threads = 1, .seed = 2}, &ctx, NULL) != TN_OK) return 1;
    tn_params *ps = tn_params_create(ctx);
    product_states(ctx, ps);
    trains(ctx, ps);
    sites(ctx, ps);
    attention(ctx, ps);
    check("no error is left", tn_ctx_status(ctx), TN_OK, 0);
    if (tn_ctx_status(ctx) != TN_OK) puts(tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return failures != 0;
}
