/* Reads circuits of a transformer from its weights, and splits a logit into paths. */
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
    double v[2048] = {0};
    if (!t || tn_tensor_count(t) > 2048 || tn_read(t, TN_F64, v, tn_tensor_count(t)) != TN_OK) return NAN;
    return v[i];
}

enum { VOCAB = 11, DIM = 8, HEADS = 2, T = 5 };

static void tables(tn_ctx *ctx, const tn_transformer *model)
{
    tn_circuit_desc d = {.block = 0, .head = 1, .tokens = true};
    tn_circuit     *qk = tn_circuit_qk(ctx, model, &d), *ov = tn_circuit_ov(ctx, model, &d);
    double          norm = 0, sum = 0, score = NAN;
    check("tokens against tokens", (double)(qk->rows * 100 + ov->columns), VOCAB * 100 + VOCAB, 0);
    tn_tensor *rows = tn_circuit_rows(ctx, ov, 0, VOCAB), *values = NULL, *ids = NULL;
    for (int i = 0; i < VOCAB * VOCAB; i++) sum += at(rows, i) * at(rows, i);
    check("norm", tn_circuit_norm(ov, &norm) == TN_OK ? norm : NAN, sqrt(sum), 1e-10);
    check("copying score", tn_circuit_copying(ov, NULL, &score) == TN_OK && fabs(score) <= 1, 1, 0);
    tn_circuit_entries e, both[2];
    check("largest entries", tn_circuit_top(ov, &(tn_circuit_top_desc){.top = 3}, &e), TN_OK, 0);
    check("share", at(e.share, 0), pow(at(e.values, 0), 2) / sum, 1e-10);
    tn_circuit_top_desc orders[2] = {{.top = 1}, {.top = 1, .order = TN_ORDER_SMALLEST}};
    check("of two orders", tn_circuit_top_many(ov, 2, orders, both), TN_OK, 0);
    check("the first is the same", at(both[0].values, 0), at(e.values, 0), 0);
    check("the last is smaller", at(both[1].values, 0) <= at(both[0].values, 0), 1, 0);
    tn_circuit_entries_destroy(&e);
    tn_circuit_entries_destroy(&both[0]);
    tn_circuit_entries_destroy(&both[1]);
    check("of each row", tn_circuit_top_rows(ov, 2, TN_ORDER_LARGEST, &values, &ids), TN_OK, 0);
    check("the largest of the first", at(values, 0), at(rows, (int64_t)at(ids, 0)), 1e-12);
    tn_tensor *columns = NULL;
    check("means", tn_circuit_means(ov, &columns, NULL) == TN_OK && columns->shape[0] == VOCAB, 1, 0);
    d.tokens = false;
    tn_circuit *inner = tn_circuit_ov(ctx, model, &d);
    d.block = 1;
    tn_circuit *outer = tn_circuit_ov(ctx, model, &d);
    check("a virtual head", (double)tn_circuit_compose(outer, TN_CIRCUIT_COLUMNS, inner)->rows, DIM, 0);
    check("composition scores", (double)tn_circuit_composition(ctx, model, 0, 1, TN_HEAD_V)->shape[0], HEADS, 0);
    tn_circuit *bigrams = tn_circuit_bigrams(ctx, model, 0, 0), *pairs = tn_circuit_pairs(ctx, model, 0, 3);
    check("bigrams", (double)bigrams->columns, VOCAB, 0);
    check("pairs are symmetric", at(tn_circuit_rows(ctx, pairs, 1, 1), 2), at(tn_circuit_rows(ctx, pairs, 2, 1), 1), 1e-12);
    tn_circuit_destroy(bigrams);
    check("an MLP as an operator", tn_circuit_mlp(ctx, model, 1)->order, 2, 0);
    check("the unembedding", (double)tn_circuit_unembedding(ctx, model)->shape[0], VOCAB, 0);
    tn_circuit_block block;
    tn_circuit_block_desc b = {.block = 0, .norm1_scale = 1, .norm2_scale = 1};
    check("a block as tensors", tn_circuit_block_of(ctx, model, &b, &block), TN_OK, 0);
    check("one term", tn_circuit_block_term(&block, 0, 1) != NULL, 1, 0);
    tn_circuit_block_destroy(&block);
    tn_circuit_sparsity sparse;
    check("sparsity", tn_circuit_sparsity_of(ctx, tn_eye(ctx, 4), &sparse), TN_OK, 0);
    check("a coordinate alone", at(sparse.participation, 2), 1, 1e-12);
    tn_circuit_sparsity_destroy(&sparse);

    tn_circuit_evidence *evidence = tn_circuit_evidence_create(ctx, &(tn_circuit_evidence_desc){.features = 4, .top = 2});
    tn_circuit_evidence_result r;
    check("evidence", tn_circuit_evidence_add(evidence, tn_eye(ctx, 4)), TN_OK, 0);
    check("read", tn_circuit_evidence_read(evidence, &r), TN_OK, 0);
    check("rows, and a mean", (double)r.rows + at(r.mean, 1), 4.25, 1e-12);
    tn_circuit_evidence_result_destroy(&r);
    tn_circuit_evidence_destroy(evidence);
    tn_circuit_maximum m;
    tn_tensor *eye = tn_eye(ctx, 3), *list[1] = {eye};
    tn_net    *form = tn_net_create(ctx, "ij->|ij", 1, list, TN_NET_COPY);
    check("largest value on the sphere", tn_circuit_maximise(form, tn_full(ctx, 0, NULL, 1), &(tn_circuit_maximum_desc){.radius = 2}, &m), TN_OK, 0);
    check("|x|^2 = 4", m.value, 4, 1e-9);
    tn_circuit_maximum_destroy(&m);
}

static void paths(tn_ctx *ctx, const tn_transformer *model, tn_tensor *ids)
{
    tn_circuit_frozen f;
    check("frozen on a text", tn_circuit_freeze(ctx, model, ids, &f), TN_OK, 0);
    check("its logits are the model's", f.error, 0, 1e-10);
    const double logit = at(tn_transformer_forward(ctx, model, ids), (T - 1) * VOCAB + 3);
    tn_circuit_target target = {.aim = TN_CIRCUIT_AIM_LOGIT, .position = T - 1, .token = 3};
    tn_circuit_parts  parts;
    check("parts by degree", tn_circuit_parts_of(&f, &target, &(tn_circuit_parts_desc){.by = TN_CIRCUIT_BY_DEGREE}, &parts), TN_OK, 0);
    check("the whole is the logit", parts.whole, logit, 1e-9);
    check("they add up", parts.error, 0, 1e-9);
    char name[64];
    check("a name", tn_circuit_part_name(&parts, 1, name, sizeof name) > 0 && strcmp(name, "degree 1") == 0, 1, 0);
    tn_circuit_parts_destroy(&parts);
    tn_circuit_paths found;
    check("paths, best first", tn_circuit_paths_find(&f, &target, &(tn_circuit_paths_desc){.budget = 200}, &found), TN_OK, 0);
    check("found and rest add up to it", found.found + found.rest, logit, 1e-9);
    check("number of paths", found.all > 1 && tn_circuit_path_count(&f, false) >= 1, 1, 0);
    check("the name of a path", tn_circuit_path_name(&found, found.path[0], NULL, name, sizeof name) > 0, 1, 0);
    tn_circuit_ablation gone;
    check("ablated", tn_circuit_paths_ablate(&found, 2, &gone), TN_OK, 0);
    check("two of them", (double)gone.count, 2, 0);
    tn_circuit_ablation_destroy(&gone);
    tn_circuit_paths_destroy(&found);
    tn_circuit_attribution who;
    check("attribution", tn_circuit_attribute(&f, &target, &who), TN_OK, 0);
    check("adds up", who.error, 0, 1e-9);
    tn_circuit_attribution_destroy(&who);
    check("updated", tn_circuit_frozen_update(&f), TN_OK, 0);
    tn_circuit_frozen_destroy(&f);

    double s[DIM];
    for (int i = 0; i < DIM; i++) s[i] = 0.1 * (i - 3);
    const int64_t dim = DIM;
    tn_tensor    *v = tn_tensor_from(ctx, 1, &dim, TN_F64, s), *square = NULL;
    tn_circuit_steering_desc d = {.point = "blocks.0", .edit = {.keep = 1, .value = v}};
    tn_circuit_steering      steering;
    check("steering", tn_circuit_steering_of(ctx, model, ids, &d, &steering), TN_OK, 0);
    check("interactions and square: all there is", steering.rest, 0, 1e-9);
    tn_circuit_steering_destroy(&steering);
    tn_circuit *by = tn_circuit_steer(ctx, tn_circuit_mlp(ctx, model, 1), v, &square);
    check("2 B(s,.) and B(s,s)", by != NULL && square != NULL, 1, 0);
    tn_circuit_alignment same;
    check("two models", tn_circuit_align(ctx, model, model, 0, false, &same), TN_OK, 0);
    check("a model and itself", same.cosine, 1, 1e-9);
    tn_circuit_alignment_destroy(&same);
}

int main(void)
{
    tn_ctx *ctx;
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64, .threads = 1, .seed = 6}, &ctx, NULL) != TN_OK) return 1;
    tn_params     *ps = tn_params_create(ctx);
    tn_transformer model;
    const tn_transformer_desc d = {.vocab = VOCAB, .layers = 2, .dim = DIM, .heads = HEADS, .context = T, .no_norm = true,
                                   .init = TN_INIT_NORMAL};
    const int32_t id[T] = {3, 1, 4, 1, 5};
    const int64_t shape[2] = {1, T};
    if (tn_transformer_init(ps, NULL, &d, &model) != TN_OK) return puts(tn_ctx_error(ctx)), 1;
    tables(ctx, &model);
    paths(ctx, &model, tn_tensor_from(ctx, 2, shape, TN_I32, id));
    check("no error is left", tn_ctx_status(ctx), TN_OK, 0);
    if (tn_ctx_status(ctx) != TN_OK) puts(tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return failures != 0;
}
