#include "core/inner.h"
#include "tensor/inner.h"
#include "tape/inner.h"
#include "ops/inner.h"
#include "layers/inner.h"
#include "io/inner.h"
#include "models/inner.h"

#ifndef TN_NO_MODELS
/* ---- runs ---------------------------------------------------------------- >>model-run-impl */

/* The number of insertions, removals and replacements of letters that turn the first 55 bytes of a into those of b.
   Levenshtein 1966 */
static int tni_name_distance(const char *a, const char *b)
{
    int row[56], j;
    for (j = 0; j < 56; j++) row[j] = j;
    for (int i = 0; i < 55 && a[i]; i++) {
        int before = row[0]++;
        for (j = 0; j < 55 && b[j]; j++) {
            int above = row[j + 1];
            row[j + 1] = (int)tni_min(tni_min(above, row[j]) + 1, before + (a[i] != b[j]));
            before = above;
        }
    }
    for (j = 0; j < 55 && b[j]; j++) {}
    return row[j];
}

/* The block of a name that begins with "blocks.N", or -1; *rest, if not NULL, becomes what follows N. */
TNI_FN int64_t tni_name_block(const char *name, const char **rest)
{
    const char *at;
    int64_t     l = 0;
    if (!tni_name_matches("blocks.*", name) || name[7] < '0' || name[7] > '9') return -1;
    for (at = name + 7; *at >= '0' && *at <= '9' && l < INT32_MAX; at++) l = 10 * l + (*at - '0');
    if (rest) *rest = at;
    return l;
}

static bool tni_tap_in_block(const tn_transformer *m, int64_t l, const char *name)
{
    tn_point points[TNI_BLOCK_POINTS];
    int64_t  n = tni_points_at(m, l, points);
    for (int64_t i = 0; i < n; i++) if (tni_name_matches(name, points[i].name)) return true;
    return false;
}

/* Checks that a name or pattern has a point, or proposes the nearest. */
static bool tni_tap_known(tn_ctx *ctx, const tn_transformer *m, const char *name)
{
    const int64_t own = tni_name_block(name, NULL);
    tn_point points[TNI_BLOCK_POINTS];
    int      least = INT32_MAX;
    if (own < m->desc.layers && tni_tap_in_block(m, own, name)) return true;
    for (int64_t l = 0; l < m->desc.layers; l++) if (tni_tap_in_block(m, l, name)) return true;
    tn_point nearest = TNI_ZERO;
    for (int64_t l = -1; l < m->desc.layers; l++) {
        int64_t n = tni_points_at(m, l, points);
        for (int64_t i = 0; i < n; i++) {
            int distance = tni_name_distance(name, points[i].name);
            if (distance < least) nearest = points[i];
            least = distance < least ? distance : least;
        }
    }
    return tni_fail(ctx, TN_ERR_ARG, "transformer_run: the model has no point %s; did you mean %s?", tni_quote(name).s,
                    nearest.name), false;
}

static bool tni_taps_known(tn_ctx *ctx, const tn_transformer *m, const tn_tap *taps, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!taps[i].points || !taps[i].fn)
            return tni_fail(ctx, TN_ERR_ARG, "transformer_run: %s of tap %lld is NULL", taps[i].points ? "fn" : "points",
                            (long long)i), false;
        if (!tni_tap_known(ctx, m, taps[i].points)) return false;
    }
    return true;
}

tn_tensor *tn_transformer_run(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, const tn_tap *taps, int64_t n)
{
    tni_taps all;
    if (!tni_model_given(ctx, m, ids, "ids", "transformer_run")) return NULL;
    if (n < 0 || (n > 0 && !taps))
        return tni_fail(ctx, TN_ERR_ARG, "transformer_run: n is %lld with taps %s, expected 0, or more with an array",
                        (long long)n, taps ? "given" : "NULL"), (tn_tensor *)NULL;
    if (n > 0 && !tni_taps_known(ctx, m, taps, n)) return NULL;
    all.show = tni_taps_show;
    all.asks = tni_taps_ask;
    all.list = taps;
    all.count = n;
    all.block = -1;
    tn_tensor *x = tni_model_run(ctx, m, ids, 0, NULL, n > 0 ? &all : NULL);
    return x ? tni_model_head(ctx, m, x, n > 0 ? &all : NULL) : NULL;
}

/* ---- changes of points, and what a run is read with ---------------------- >>model-edit */

tn_tensor *tn_tap_read(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    if (!user)
        return tni_fail(ctx, TN_ERR_ARG, "tap_read: user is NULL at %s, expected the address of a tensor *",
                        name ? name : "a point"), (tn_tensor *)NULL;
    *(tn_tensor **)user = x;
    return x;
}

/* The mean over texts and one more axis, which keep the extent 1 */
static tn_tensor *tni_edit_mean(tn_ctx *ctx, tn_tensor *x, int axis)
{
    int64_t    shape[TN_MAX_RANK];
    double     n = (double)x->shape[0] * (double)x->shape[axis];
    tn_tensor *sum = tn_sum_axis(ctx, x, axis);
    memcpy(shape, x->shape, sizeof shape);
    shape[0] = shape[axis] = 1;
    sum = tn_reshape(sum ? tn_sum_axis(ctx, sum, 0) : NULL, x->rank, shape);
    return sum ? tn_scale(ctx, sum, 1 / n) : NULL;
}

/* [from,to) of an axis of x; of a value, if it has x's extent there, counted from the last axis */
static tn_tensor *tni_edit_part(tn_tensor *t, const tn_tensor *x, int axis, int64_t from, int64_t to)
{
    const int own = t ? axis - x->rank + t->rank : -1;
    return own >= 0 && t->shape[own] == x->shape[axis] ? tn_slice(t, own, from, to) : t;
}

/* x with [from,to) of an axis exchanged for `part` */
static tn_tensor *tni_edit_spliced(tn_ctx *ctx, tn_tensor *x, int axis, int64_t from, int64_t to, tn_tensor *part)
{
    tn_tensor *list[3];
    int64_t    n = 0;
    if (!part) return NULL;
    if (part->dtype != x->dtype && !(part = tn_cast(ctx, part, x->dtype))) return NULL;
    if (from > 0) list[n++] = tn_slice(x, axis, 0, from);
    list[n++] = part;
    if (to < x->shape[axis]) list[n++] = tn_slice(x, axis, to, x->shape[axis]);
    return n > 1 ? tn_concat(ctx, n, list, axis) : part;
}

static bool tni_edit_range(tn_ctx *ctx, const char *name, const char *what, int64_t first, int64_t count, int64_t extent)
{
    if (first >= 0 && count > 0 && first <= extent - count) return true;
    return tni_fail(ctx, TN_ERR_SHAPE, "tap_edit: %s: %s is %lld and %ss %lld, expected a range within 0 to %lld", name, what,
                    (long long)first, what, (long long)count, (long long)extent - 1), false;
}

tn_tensor *tn_tap_edit(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    const tn_edit *e = (const tn_edit *)user;
    int64_t    h0 = 0, h1 = 0;
    tn_tensor     *y = NULL;
    if (!ctx || !e || !name || !tni_is_real(ctx, x, "tap_edit", "x")) return NULL;
    int heads = tni_name_matches("*.pattern", name) ? 1 : 2;
    int tokens = 3 - heads;
    if (x->rank < 3 || (x->rank < 4 && e->heads != 0) || (e->heads != 0 && tni_name_matches("*.mlp.encoders", name)))
        return tni_fail(ctx, TN_ERR_ARG, "tap_edit: %s has no heads, expected heads 0", name), (tn_tensor *)NULL;
    if ((e->heads != 0 && !tni_edit_range(ctx, name, "head", e->head, e->heads, x->shape[heads]))
        || (e->tokens != 0 && !tni_edit_range(ctx, name, "token", e->token, e->tokens, x->shape[tokens]))) return NULL;
    h1 = e->heads ? e->head + e->heads : x->shape[heads];
    h0 = e->heads ? e->head : 0;
    int64_t    t0 = e->tokens ? e->token : 0;
    int64_t    t1 = e->tokens ? e->token + e->tokens : x->shape[tokens];
    tn_tensor *by_head = tn_slice(x, heads, h0, h1);
    tn_tensor *part = tn_slice(by_head, tokens, t0, t1);
    if (!part) return NULL;
    tn_tensor *value = tni_edit_part(tni_edit_part(e->value, x, heads, h0, h1), x, tokens, t0, t1);
    tn_tensor *mean = e->mean ? tni_edit_mean(ctx, by_head, tokens) : NULL;
    if ((e->value && !value) || (e->mean && !mean)) return NULL;
    if (e->keep != 0) y = e->keep == 1 ? part : tn_scale(ctx, part, e->keep);
    else y = tn_full(ctx, part->rank, part->shape, 0);
    if (value) y = tn_add(ctx, y, value);
    if (mean) y = tn_add(ctx, y, mean);
    if (y && !tni_same_shape(y, part))
        return tni_fail(ctx, TN_ERR_SHAPE, "tap_edit: %s: value is %s, expected a shape that is broadcast to %s", name,
                        TNI_SHAPE(e->value), TNI_SHAPE(part)), (tn_tensor *)NULL;
    return tni_edit_spliced(ctx, x, heads, h0, h1, tni_edit_spliced(ctx, by_head, tokens, t0, t1, y));
}

tn_tensor *tn_transformer_logit_lens(tn_ctx *ctx, const tn_transformer *m, tn_tensor *x)
{
    if (!tni_layer_given(ctx, m, "transformer")) return NULL;
    x = tni_model_ended(ctx, m, x, NULL);
    return x ? tni_model_head(ctx, m, x, NULL) : NULL;
}

/* ---- direct logit attribution --------------------------------------------- >>model-attribution */

int64_t tn_transformer_parts(const tn_transformer *m, tn_point *parts, int64_t max)
{
    tni_points p = {0, parts ? max : 0, parts};
    char       head[32];
    if (!m || !m->blocks) return 0;
    tni_point_add(&p, -1, "embed", "", 0, 0, 0, 0, 0);
    for (int64_t l = 0; l < m->desc.layers; l++) {
        for (int64_t h = 0; h < m->desc.heads; h++) {
            tni_print(head, sizeof head, ".%lld", (long long)h);
            tni_point_add(&p, l, "attn", head, 0, 0, 0, 0, 0);
        }
        if (m->blocks[l].attn.ob || m->blocks[l].norm1_out.bias) tni_point_add(&p, l, "attn", ".bias", 0, 0, 0, 0, 0);
        tni_point_add(&p, l, "mlp", "", 0, 0, 0, 0, 0);
    }
    if (m->norm.bias) tni_point_add(&p, -1, "norm", ".bias", 0, 0, 0, 0, 0);
    return p.count;
}

/* What an attribution reads: three points of each block, attn.z, norm1_out.scale and mlp, then embed and norm.scale. */
typedef struct tni_read_parts { int64_t layers; tn_tensor **of; } tni_read_parts;

static tn_tensor *tni_attribution_read(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    const tni_read_parts *to = (const tni_read_parts *)user;
    const char           *part;
    const int64_t         l = tni_name_block(name, &part);
    (void)ctx;
    if (l < 0) to->of[3 * to->layers + (*name != 'e')] = x;
    else to->of[3 * l + (strcmp(part, ".attn.z") == 0 ? 0 : strcmp(part, ".mlp") == 0 ? 2 : 1)] = x;
    return x;
}

/* The direction whose product with x is that of `to` with the norm of x, without its bias, for a constant scale */
static tn_tensor *tni_norm_pulled(tn_ctx *ctx, const tn_norm *norm, tn_tensor *scale, tn_tensor *to)
{
    if (norm->gain) to = tn_mul(ctx, to, norm->gain);
    to = to ? tn_mul(ctx, to, scale) : NULL;
    return to && norm->desc.kind == TN_NORM_LAYER ? tn_sub(ctx, to, tni_mean_of_rows(ctx, to)) : to;
}

/* The product of each row of x and `to` [B,T,n]: [B,T,1] */
static tn_tensor *tni_row_product(tn_ctx *ctx, tn_tensor *x, tn_tensor *to)
{
    tn_tensor *y = x && to ? tni_mean_of_rows(ctx, tn_mul(ctx, to, x)) : NULL;
    return y ? tn_scale(ctx, y, (double)to->shape[to->rank - 1]) : NULL;
}

/* What each head adds along `to` [B,T,dim], and the constants: [B,T,H], [B,T,1] or NULL */
static bool tni_attribution_heads(tn_ctx *ctx, const tn_transformer *m, const tn_transformer_block *b,
                                  tn_tensor *const of[3], tn_tensor *to, tn_tensor **heads, tn_tensor **rest)
{
    const bool out = of[1] != NULL;                             /* norm1_out */
    tn_tensor *z = of[0], *bias = NULL;
    int64_t    shape[4];
    if (m->desc.attn_scale != 1) to = tn_scale(ctx, to, m->desc.attn_scale);
    if (out && b->norm1_out.bias && !(bias = tni_row_product(ctx, b->norm1_out.bias, to))) return false;
    if (out) to = tni_norm_pulled(ctx, &b->norm1_out, of[1], to);
    *rest = b->attn.ob ? tni_row_product(ctx, b->attn.ob, to) : bias;
    if (b->attn.ob && bias) *rest = tn_add(ctx, *rest, bias);
    if (!to || ((b->attn.ob || bias) && !*rest)) return false;
    memcpy(shape, z->shape, sizeof shape);
    tn_tensor *back = tn_affine(ctx, to, tn_transpose(b->attn.o, 0, 1), NULL);
    back = back ? tni_row_product(ctx, z, tn_reshape(back, 4, shape)) : NULL;
    *heads = tn_reshape(back, 3, shape);
    return *heads != NULL;
}

/* All parts, from the last to the first. `to` is what the stream is multiplied with at that place. */
static tn_tensor *tni_attribution_parts(tn_ctx *ctx, const tn_transformer *m, const tni_read_parts *read, tn_tensor *to,
                                        tn_tensor **list)
{
    const int64_t L = m->desc.layers, most = 3 * L + 2;
    tn_tensor    *embed = NULL;
    int64_t       at = most;
    if (m->norm.bias && !(list[--at] = tni_row_product(ctx, m->norm.bias, to))) return NULL;
    if (!m->desc.no_norm) to = tni_norm_pulled(ctx, &m->norm, read->of[3 * L + 1], to);
    for (int64_t l = L; l-- > 0 && to;) {
        const tn_transformer_block *b = &m->blocks[l];
        tn_tensor *heads, *rest = NULL;
        if (!(list[--at] = tni_row_product(ctx, read->of[3 * l + 2], to))
            || !tni_attribution_heads(ctx, m, b, read->of + 3 * l, to, &heads, &rest)) return NULL;
        if (rest) list[--at] = rest;
        list[--at] = heads;
        if (!b->lambdas) continue;
        tn_tensor *more = tn_mul(ctx, to, tn_slice(b->lambdas, 0, 1, 2));
        embed = embed ? tn_add(ctx, embed, more) : more;
        to = tn_mul(ctx, to, tn_slice(b->lambdas, 0, 0, 1));
    }
    to = embed && to ? tn_add(ctx, embed, to) : to;
    list[--at] = tni_row_product(ctx, read->of[3 * L], to);
    return list[at] ? tn_concat(ctx, most - at, list + at, 2) : NULL;
}

static bool tni_attribution_given(tn_ctx *ctx, const tn_transformer *m, const tn_tensor *ids, const tn_tensor *targets,
                                  const tn_tensor *others)
{
    static const char op[] = "transformer_attribution";
    if (!tni_model_given(ctx, m, ids, "ids", op) || !tni_model_given(ctx, m, targets, "targets", op)
        || (others && !tni_model_given(ctx, m, others, "others", op))) return false;
    if (!tni_same_shape(ids, targets) || (others && !tni_same_shape(ids, others)))
        return tni_fail(ctx, TN_ERR_SHAPE, "%s: %s are %s, expected %s as ids", op,
                        tni_same_shape(ids, targets) ? "others" : "targets",
                        tni_same_shape(ids, targets) ? TNI_SHAPE(others) : TNI_SHAPE(targets), TNI_SHAPE(ids)), false;
    return !tni_contradiction(ctx, m->desc.norm_place == TN_PLACE_POST, "norm_place is TN_PLACE_POST, expected another place for "
                              "an attribution: its norms change the parts of earlier blocks")
        && !tni_contradiction(ctx, tni_recording(ctx) && m->desc.dropout > 0, "dropout is above 0 while the context is "
                              "recording, expected an attribution without either");
}

tn_tensor *tn_transformer_attribution(tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids, tn_tensor *targets,
                                      tn_tensor *others)
{
    static const char *const points[5] = {"embed", "*.attn.z", "*.mlp", "*.norm1_out.scale", "norm.scale"};
    tn_tap         taps[5];
    tni_read_parts read;
    tni_scratch    w = tni_scratch_begin(ctx, "transformer_attribution");
    int64_t        n = 0;
    if (!tni_attribution_given(ctx, m, ids, targets, others)) return NULL;
    read.layers = m->desc.layers;
    tn_tensor **list = (tn_tensor **)tni_take_zeroed(&w, tni_plus(tni_area(6, read.layers), 4), sizeof *list);
    if (!list) return NULL;
    read.of = list + 3 * read.layers + 2;
    for (int64_t i = 0; i < 5; i++) {
        if ((i == 3 && m->desc.norm_place != TN_PLACE_SANDWICH) || (i == 4 && m->desc.no_norm)) continue;
        taps[n].points = points[i];
        taps[n].fn = tni_attribution_read;
        taps[n++].user = &read;
    }
    tn_tensor *y = tn_transformer_run(ctx, m, ids, taps, n);
    y = y ? tn_gather(ctx, m->head.w, 0, targets) : NULL;       /* the rows of the unembedding, less those of `others` */
    if (y && others) y = tn_sub(ctx, y, tn_gather(ctx, m->head.w, 0, others));
    y = y ? tni_attribution_parts(ctx, m, &read, y, list) : NULL;
    tni_scratch_end(&w, TN_OK);
    return y;
}

#endif /* TN_NO_MODELS */
