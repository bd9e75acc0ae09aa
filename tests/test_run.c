/* test_run.c: runs of a transformer whose points are read or replaced; edits; attribution. */

#include "capture.h"
#include "model.h"

enum { TOKENS = 5, TEXTS = 2 };

static int64_t tokens_of(const tn_transformer_desc *d) { return d->positions == TN_POSITIONS_LEARNED ? 4 : TOKENS; }

/* Whether both have the same shape and bits. */
static bool same_bits(const tn_tensor *a, const tn_tensor *b)
{
    const int64_t n = a ? tn_tensor_count(a) : 0;
    double       *u = doubles(2 * n);
    bool          same = a && b && tn_tensor_count(b) == n && tn_read(a, TN_F64, u, n) == TN_OK
                         && tn_read(b, TN_F64, u + n, n) == TN_OK && memcmp(u, u + n, sizeof *u * (size_t)n) == 0;
    return same;
}

/* The largest |a - b| over the largest |b| */
static double apart(const tn_tensor *a, const tn_tensor *b)
{
    const int64_t n = a ? tn_tensor_count(a) : 0;
    double       *u = doubles(2 * n), worst = 0, size = 1e-300;
    if (!a || !b || tn_tensor_count(b) != n || tn_read(a, TN_F64, u, n) != TN_OK || tn_read(b, TN_F64, u + n, n) != TN_OK)
        worst = HUGE_VAL;
    for (int64_t i = 0; i < n && worst < HUGE_VAL; i++) {
        test_raise(&worst, fabs(u[i] - u[n + i]));
        test_raise(&size, fabs(u[n + i]));
    }
    return worst / size;
}

/* ---- the points: their names, shapes and order; forward's bits --------------------------------------------- */

typedef struct listing { const tn_point *points; int64_t count, at; int wrong; } listing;

static tn_tensor *checks_list(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    listing        *l = (listing *)user;
    const tn_point *p = &l->points[l->at];
    (void)ctx;
    if (l->at < l->count && (strcmp(p->name, name) != 0 || p->rank != x->rank
                             || memcmp(p->shape, x->shape, sizeof p->shape[0] * (size_t)x->rank) != 0)) {
        if (!l->wrong++) fprintf(test_out(), "%s [%d], listed: %s [%d]\n", name, x->rank, p->name, p->rank);
    }
    l->at++;
    return x;
}

TEST(every_point_read)
{
    for (int k = 0; k < VARIANTS; k++) {
        for (int t = 0; t < 2; t++) {
            const char         *what;
            tn_transformer_desc d = variant(k, &what);
            const tn_dtype      dtype = t ? TN_F32 : TN_F64;
            tn_point            points[80];
            world               w;
            tn_transformer      m;
            listing             l = ZERO;
            tn_tap              tap;
            REQUIRE(model_on(&w, dtype, &d, &m, 3));
            tn_tensor *ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
            tn_tensor *whole = tn_transformer_forward(w.ctx, &m, ids);
            l.points = points;
            l.count = tn_transformer_points(&m, TEXTS, tokens_of(&d), points, 80);
            CHECK(l.count <= 80 && l.count > 10 * m.desc.layers);
            tap.points = "*";
            tap.fn = checks_list;
            tap.user = &l;
            tn_tensor *run = tn_transformer_run(w.ctx, &m, ids, &tap, 1);
            if (!CHECK(same_bits(run, whole)) || !CHECK_INT(l.at, l.count) || !CHECK_INT(l.wrong, 0))
                fprintf(test_out(), "in: %s\n", what);
            run = tn_transformer_run(w.ctx, &m, ids, NULL, 0);
            CHECK(same_bits(run, whole));
            CHECK_CTX(w.ctx);
            close_world(&w);
        }
    }
}

/* ---- points that are replaced ------------------------------------------------------------------------------- */

static tn_tensor *copies(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    (void)name;
    ++*(int *)user;
    return tn_copy(ctx, x);
}

/* Each point in turn is replaced by a copy: the run is computed from the copy, and agrees to rounding. */
TEST(copies_in_place_of_points)
{
    double worst = 0;
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_point            points[80];
        world               w;
        tn_transformer      m;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
        int64_t n = tn_transformer_points(&m, TEXTS, tokens_of(&d), points, 80);
        for (int64_t i = 0; i < n; i++) {
            int    called = 0;
            tn_tap tap;
            tap.points = points[i].name;
            tap.fn = copies;
            tap.user = &called;
            tn_tensor *ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
            tn_tensor *whole = tn_transformer_forward(w.ctx, &m, ids);
            double off = apart(tn_transformer_run(w.ctx, &m, ids, &tap, 1), whole);
            test_raise(&worst, off);
            if (!CHECK_INT(called, 1) || !(off < 1e-12)) fprintf(test_out(), "in: %s, %s: %g\n", what, tap.points, off);
            tn_ctx_reset(w.ctx);
        }
        close_world(&w);
    }
    WORST("logits computed from a copy of a point", worst, 1e-12);
}

/* ---- what the points mean ----------------------------------------------------------------------------------- */

enum { KEPT = 80 };

/* The values of all points of a run, by name. */
typedef struct kept { tn_point points[KEPT]; tn_tensor *at[KEPT]; tn_tap taps[KEPT]; int64_t n; } kept;

static tn_tensor *run_kept(kept *k, tn_ctx *ctx, const tn_transformer *m, tn_tensor *ids)
{
    k->n = tn_transformer_points(m, ids->shape[0], ids->shape[1], k->points, KEPT);
    if (!CHECK(k->n <= KEPT)) return NULL;
    for (int64_t i = 0; i < k->n; i++) {
        k->taps[i].points = k->points[i].name;
        k->taps[i].fn = tn_tap_read;
        k->taps[i].user = &k->at[i];
    }
    return tn_transformer_run(ctx, m, ids, k->taps, k->n);
}

/* NULL if the model has no such point */
static tn_tensor *of_point(const kept *k, const char *name)
{
    for (int64_t i = 0; i < k->n; i++) if (!strcmp(k->points[i].name, name)) return k->at[i];
    return NULL;
}

/* norm = x * scale * gain, or (x - mean x) * scale * gain + bias */
static tn_tensor *norm_again(tn_ctx *ctx, const tn_norm *norm, tn_tensor *x, tn_tensor *scale)
{
    int64_t shape[3];
    if (norm->desc.kind == TN_NORM_LAYER) {
        tn_tensor *sum = tn_sum_axis(ctx, x, 2);
        memcpy(shape, x->shape, sizeof shape);
        shape[2] = 1;
        x = tn_sub(ctx, x, tn_scale(ctx, tn_reshape(sum, 3, shape), 1 / (double)x->shape[2]));
    }
    x = tn_mul(ctx, x, scale);
    if (norm->gain) x = tn_mul(ctx, x, norm->gain);
    return norm->bias ? tn_add(ctx, x, norm->bias) : x;
}

TEST(points_fit_together)
{
    double sums = 0, norms = 0, patterns = 0, lens = 0;
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        const bool          post = d.norm_place == TN_PLACE_POST;
        world               w;
        tn_transformer      m;
        kept                p;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
        tn_tensor *ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
        tn_tensor *logits = run_kept(&p, w.ctx, &m, ids);
        REQUIRE(logits);
        tn_tensor *x = of_point(&p, "embed");
        for (int64_t l = 0; l < m.desc.layers && !post; l++) {
            const tn_attention_desc *a = &m.blocks[l].attn.desc;
            char name[64];
#define POINT(part) (snprintf(name, sizeof name, "blocks.%d%s", (int)l, part), of_point(&p, name))
            if (m.blocks[l].lambdas) x = POINT(".input");
            if (!d.no_norm)
                test_raise(&norms, apart(norm_again(w.ctx, &m.blocks[l].norm1, x, POINT(".norm1.scale")), POINT(".norm1")));
            test_raise(&sums, apart(tn_add(w.ctx, x, POINT(".attn")), POINT(".middle")));
            x = POINT(".middle");
            if (!d.no_norm)
                test_raise(&norms, apart(norm_again(w.ctx, &m.blocks[l].norm2, x, POINT(".norm2.scale")), POINT(".norm2")));
            test_raise(&sums, apart(tn_add(w.ctx, x, POINT(".mlp")), POINT("")));
            x = POINT("");
            tn_tensor *v = POINT(".attn.v");
            tn_tensor *z = POINT(".attn.z");
            if (!a->head_norm && a->kind != TN_ATTENTION_DIFFERENTIAL) {
                tn_tensor *again = tn_matmul(w.ctx, POINT(".attn.pattern"), tn_transpose(v, 1, 2));
                test_raise(&patterns, apart(tn_transpose(again, 1, 2), z));
            }
            test_raise(&patterns, apart(POINT(".attn.pattern"), tn_transformer_pattern(w.ctx, &m, ids, l)));
#undef POINT
        }
        if (post) x = p.at[p.n - 2];
        CHECK_STR(p.points[p.n - 1].name, "logits");
        CHECK(same_bits(of_point(&p, "logits"), logits));
        test_raise(&lens, apart(tn_transformer_logit_lens(w.ctx, &m, x), logits));
        close_world(&w);
    }
    WORST("sums of the residual stream", sums, 1e-15);
    WORST("norms from their scales", norms, 1e-14);
    WORST("heads from their patterns", patterns, 1e-14);
    WORST("the lens of the last block", lens, 0);
}

/* ---- attribution -------------------------------------------------------------------------------------------- */

/* logits [B,T,vocab] at targets, less those at others: [B,T] */
static void differences(const tn_tensor *logits, const tn_tensor *targets, const tn_tensor *others, double *to)
{
    const int64_t n = tn_tensor_count(targets), vocab = logits->shape[2];
    double       *u = doubles(n * vocab);
    int32_t      *a = (int32_t *)malloc(sizeof *a * (size_t)(2 * n));
    CHECK_STATUS(tn_read(logits, TN_F64, u, n * vocab), TN_OK);
    CHECK_STATUS(tn_read(targets, TN_I32, a, n), TN_OK);
    if (others) CHECK_STATUS(tn_read(others, TN_I32, a + n, n), TN_OK);
    for (int64_t i = 0; i < n; i++) to[i] = u[i * vocab + a[i]] - (others ? u[i * vocab + a[n + i]] : 0);
    free(a);
}

/* The part of head 0 of block 1 is what its ablation takes away if the MLP after it and the last norm's scale do not
   change. */
static double ablation_against_part(tn_ctx *ctx, const tn_transformer *m, const kept *p, tn_tensor *ids, tn_tensor *targets,
                                    tn_tensor *others, tn_tensor *parts, const double *want)
{
    const int64_t n = tn_tensor_count(ids);
    tn_edit    without = ZERO, scale = ZERO, mlp = ZERO;
    tn_tap     taps[3];
    tn_point   names[40];
    double     logits[TEXTS * TOKENS], part[TEXTS * TOKENS], worst = 0;
    int64_t    i;
    without.heads = 1;
    scale.value = of_point(p, "norm.scale");
    mlp.value = of_point(p, "blocks.1.mlp");
    taps[0].points = "blocks.1.attn.z"; taps[0].user = &without;
    taps[1].points = "blocks.1.mlp"; taps[1].user = &mlp;
    taps[2].points = "norm.scale"; taps[2].user = &scale;
    for (i = 0; i < 3; i++) taps[i].fn = tn_tap_edit;
    tn_tensor *run = tn_transformer_run(ctx, m, ids, taps, 3);
    if (!CHECK(run && tn_transformer_parts(m, names, 40) <= 40)) return HUGE_VAL;
    differences(run, targets, others, logits);
    for (i = 0; strcmp(names[i].name, "blocks.1.attn.0"); i++) {}
    CHECK_STATUS(tn_read(tn_slice(parts, 2, i, i + 1), TN_F64, part, n), TN_OK);
    for (i = 0; i < n; i++) test_raise(&worst, fabs(want[i] - logits[i] - part[i]));
    return worst;
}

TEST(attribution_sums_to_logits)
{
    double worst = 0, heads = 0;
    int    ablated = 0;
    for (int k = 0; k < 2 * VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k / 2, &what);
        double              want[TEXTS * TOKENS], sum[TEXTS * TOKENS];
        world               w;
        tn_transformer      m;
        kept                p;
        if (d.norm_place == TN_PLACE_POST) continue;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
        tn_tensor *ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
        tn_tensor *targets = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 6);
        tn_tensor *others = k % 2 ? ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 7) : NULL;
        tn_tensor *logits = run_kept(&p, w.ctx, &m, ids);
        tn_tensor *parts = tn_transformer_attribution(w.ctx, &m, ids, targets, others);
        REQUIRE(parts && logits);
        CHECK_INT(parts->shape[2], tn_transformer_parts(&m, NULL, 0));
        int64_t n = tn_tensor_count(ids);
        differences(d.softcap > 0 ? of_point(&p, "head") : logits, targets, others, want);
        CHECK_STATUS(tn_read(tn_sum_axis(w.ctx, parts, 2), TN_F64, sum, n), TN_OK);
        for (int64_t i = 0; i < n; i++) test_raise(&worst, fabs(sum[i] - want[i]) / (1 + fabs(want[i])));
        if (!d.no_norm && m.desc.layers == 2 && d.norm_place == TN_PLACE_PRE && d.softcap == 0) {
            test_raise(&heads, ablation_against_part(w.ctx, &m, &p, ids, targets, others, parts, want));
            ablated++;
        }
        close_world(&w);
    }
    CHECK(ablated > 20);
    WORST("sum of the parts - the logit", worst, 1e-14);
    WORST("a head's part - its ablation in the frozen network", heads, 1e-14);
}

/* An embedding that is twice as large, without a first block: the scale is half as large, and the shares are the same. */
TEST(parts_do_not_depend_on_the_size_of_the_stream)
{
    tn_transformer_desc d = tiny();
    double              part[2][3], scale[2];
    d.layers = d.heads = 1;
    d.zero_out = true;
    d.norm_eps = 1e-30;
    for (int k = 0; k < 2; k++) {
        world          w;
        tn_transformer m;
        tn_tensor     *read = NULL;
        double         e[20];
        tn_tap         tap;
        REQUIRE(open_on(&w, TN_F64, 9, 1, NULL));
        REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK));
        CHECK_STATUS(tn_read(m.embed.w, TN_F64, e, 20), TN_OK);
        for (int i = 0; i < 20; i++) e[i] *= k ? -4 : 1;
        CHECK_STATUS(tn_write(m.embed.w, TN_F64, e, 20), TN_OK);
        tn_tensor *ids = ids_of(w.ctx, &d, 1, 1, 2);
        tap.points = "norm.scale"; tap.fn = tn_tap_read; tap.user = &read;
        REQUIRE(tn_transformer_run(w.ctx, &m, ids, &tap, 1));
        scale[k] = tn_item(read);
        tn_tensor *parts = tn_transformer_attribution(w.ctx, &m, ids, ids, NULL);
        CHECK_STATUS(tn_read(parts, TN_F64, part[k], 3), TN_OK);
        close_world(&w);
    }
    CHECK_NEAR(4 * scale[1], scale[0], 1e-12 * scale[0]);
    CHECK(fabs(part[0][0]) > 1e-3);
    CHECK_NEAR(-part[1][0], part[0][0], 1e-14);
}

/* ---- edits -------------------------------------------------------------------------------------------------- */

/* keep x + value for the part of x, in C. axis_h: of the heads */
static void edit_again(const double *x, const int64_t shape[4], int axis_h, const tn_edit *e, const double *value, double *y)
{
    const int axis_t = 3 - axis_h;
    int64_t   at[4], n = shape[0] * shape[1] * shape[2] * shape[3];
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i;
        double  mean = 0;
        for (int k = 3; k >= 0; k--) { at[k] = rest % shape[k]; rest /= shape[k]; }
        int64_t inside = (!e->heads || (at[axis_h] >= e->head && at[axis_h] < e->head + e->heads))
                         && (!e->tokens || (at[axis_t] >= e->token && at[axis_t] < e->token + e->tokens));
        for (int64_t b = 0; b < shape[0] && e->mean; b++)
            for (int64_t t = 0; t < shape[axis_t]; t++) {
                int64_t of[4];
                memcpy(of, at, sizeof of);
                of[0] = b;
                of[axis_t] = t;
                mean += x[((of[0] * shape[1] + of[1]) * shape[2] + of[2]) * shape[3] + of[3]]
                        / (double)(shape[0] * shape[axis_t]);
            }
        y[i] = inside ? e->keep * x[i] + mean + (value ? value[i] : 0) : x[i];
    }
}

TEST(edits_by_hand)
{
    const int64_t shape[4] = {2, 3, 4, 5};
    double        worst = 0, x[120], v[120], used[120], want[120], got[120];
    world         w;
    uint64_t      seed = 8;
    REQUIRE(open_on(&w, TN_F64, 9, 1, NULL));
    for (int k = 0; k < 120; k++) { x[k] = test_random_real(&seed); v[k] = test_random_real(&seed); }
    for (int k = 0; k < 128; k++) {
        const char *name = k & 1 ? "blocks.0.attn.pattern" : "blocks.0.attn.z";
        tn_tensor  *in = tn_tensor_from(w.ctx, 4, shape, TN_F64, x);
        tn_edit     e = ZERO;
        if (k & 2) { e.head = 1; e.heads = 2; }
        if (k & 4) { e.token = 2; e.tokens = 1; }
        if (k & 8) e.keep = k & 1 ? 1 : 0.5;
        if (k & 16) e.mean = true;
        for (int i = 0; i < 120; i++) used[i] = v[k & 64 ? i % 20 : i];
        if (k & 32) e.value = k & 64 ? tn_tensor_from(w.ctx, 2, shape + 2, TN_F64, v)     /* [4,5], repeated */
                                     : tn_tensor_from(w.ctx, 4, shape, TN_F64, v);
        edit_again(x, shape, k & 1 ? 1 : 2, &e, e.value ? used : NULL, want);
        tn_tensor *out = tn_tap_edit(w.ctx, &e, name, in);
        if (!CHECK_STATUS(tn_read(out, TN_F64, got, 120), TN_OK)) break;
        for (int i = 0; i < 120; i++) test_raise(&worst, fabs(got[i] - want[i]));
    }
    WORST("edits against loops", worst, 1e-15);
    CHECK(!tn_tap_read(w.ctx, NULL, "embed", NULL));                /* there is nowhere to keep it */
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "tap_read: user is NULL at embed, expected the address of a tensor *");
    close_world(&w);
}

/* Patching all positions of one block's stream of another text gives the logits of that text; a vector that is added to all
   positions of the last stream is added before the last norm; mean ablation of equal texts changes nothing. */
TEST(patching_and_steering)
{
    tn_transformer_desc d = tiny();
    world               w;
    tn_transformer      m;
    tn_tensor          *stream = NULL, *of_other = NULL;
    double              v[4] = {0.5, -1, 0.25, 2};
    const int64_t       four = 4;
    tn_tap              tap;
    tn_edit             edit = ZERO;
    REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
    tn_tensor *ids = ids_of(w.ctx, &d, TEXTS, TOKENS, 5);
    tn_tensor *other = ids_of(w.ctx, &d, TEXTS, TOKENS, 6);
    tap.points = "blocks.0"; tap.fn = tn_tap_read; tap.user = &of_other;
    tn_tensor *logits = tn_transformer_run(w.ctx, &m, other, &tap, 1);
    edit.value = of_other;
    tap.fn = tn_tap_edit; tap.user = &edit;
    CHECK(same_bits(tn_transformer_run(w.ctx, &m, ids, &tap, 1), logits));
    /* the last two positions only: the first three read no later ones */
    edit.token = 3;
    edit.tokens = 2;
    {
        tn_tensor *run = tn_transformer_run(w.ctx, &m, ids, &tap, 1), *whole = tn_transformer_forward(w.ctx, &m, ids);
        CHECK(same_bits(tn_slice(run, 1, 0, 3), tn_slice(whole, 1, 0, 3)));
        CHECK(!same_bits(tn_slice(run, 1, 3, 4), tn_slice(whole, 1, 3, 4)));
        CHECK(!same_bits(tn_slice(run, 1, 3, 4), tn_slice(logits, 1, 3, 4)));
    }
    tap.points = "blocks.1"; tap.fn = tn_tap_read; tap.user = &stream;
    tn_transformer_run(w.ctx, &m, ids, &tap, 1);
    tn_tensor *vector = tn_tensor_from(w.ctx, 1, &four, TN_F64, v);
    memset(&edit, 0, sizeof edit);
    edit.keep = 1;
    edit.value = vector;
    tap.fn = tn_tap_edit; tap.user = &edit;
    CHECK(same_bits(tn_transformer_run(w.ctx, &m, ids, &tap, 1),
                    tn_transformer_logit_lens(w.ctx, &m, tn_add(w.ctx, stream, vector))));
    close_world(&w);
}

/* ---- recording, recomputation, BF16, graphs -------------------------------------------------------------------- */

static tn_tensor *passes(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    (void)ctx;
    (void)name;
    ++*(int *)user;
    return x;
}

static int64_t of_attention(const tn_transformer *m)
{
    tn_point points[KEPT];
    int64_t  count = 0, n = tn_transformer_points(m, 1, 1, points, KEPT);
    for (int64_t i = 0; i < n; i++) if (strstr(points[i].name, ".attn.")) count++;
    return count;
}

/* All gradients of a loss with taps that read are those without, with and without recomputation; each tap is called once. */
TEST(gradients_through_points)
{
    for (int k = 0; k < 2 * VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k / 2, &what);
        world               w;
        tn_transformer      m;
        tn_tensor          *kept_grad[60];
        int                 called = 0, wrong = 0;
        d.recompute = k % 2;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
        int64_t n = tn_params_count(w.params);
        REQUIRE(CHECK(n <= 60));
        for (int run = 0; run < 2; run++) {
            tn_tensor *ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
            tn_tensor *targets = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 6);
            tn_tap     tap;
            tap.points = "*.attn.*";
            tap.fn = passes;
            tap.user = &called;
            tn_record(w.ctx);
            CHECK_STATUS(tn_backward(w.ctx, tn_cross_entropy(w.ctx, tn_transformer_run(w.ctx, &m, ids, &tap, run), targets)),
                         TN_OK);
            for (int64_t i = 0; i < n; i++) {
                tn_tensor *g = tn_params_at(w.params, i)->value->grad;
                if (!run) kept_grad[i] = tn_tensor_keep(g);
                else {
                    wrong += !same_bits(g, kept_grad[i]);
                    tn_tensor_destroy(kept_grad[i]);
                }
            }
            tn_params_zero_grad(w.params);
            tn_ctx_reset(w.ctx);
        }
        CHECK_INT(called, of_attention(&m));
        if (!CHECK_INT(wrong, 0)) fprintf(test_out(), "in: %s, recompute %d\n", what, k % 2);
        close_world(&w);
    }
}

/* The loss with a vector that is added to half of block 0's stream, plus the mean scale of the last norm. */
static double steered_loss(world *w, const tn_transformer *m, tn_tensor **vector, double by, int64_t at, bool watch)
{
    tn_tensor    *ids = ids_of(w->ctx, &m->desc, TEXTS, TOKENS, 5), *targets = ids_of(w->ctx, &m->desc, TEXTS, TOKENS, 6);
    tn_tensor    *scale = NULL;
    double        v[4] = {0.5, -1, 0.25, 2};
    const int64_t four = 4;
    tn_edit       edit = ZERO;
    tn_tap        taps[2];
    v[at] += by;
    *vector = tn_tensor_from(w->ctx, 1, &four, TN_F64, v);
    edit.keep = 0.5;
    edit.value = *vector;
    taps[0].points = "blocks.0"; taps[0].fn = tn_tap_edit; taps[0].user = &edit;
    taps[1].points = "norm.scale"; taps[1].fn = tn_tap_read; taps[1].user = &scale;
    if (watch) {
        tn_record(w->ctx);
        CHECK_STATUS(tn_watch(*vector), TN_OK);
    }
    tn_tensor *logits = tn_transformer_run(w->ctx, m, ids, taps, 2);
    tn_tensor *loss = tn_add(w->ctx, tn_cross_entropy(w->ctx, logits, targets), tn_mean(w->ctx, scale));
    double     value = tn_item(loss);
    if (watch) CHECK_STATUS(tn_backward(w->ctx, loss), TN_OK);
    return value;
}

/* The gradient for a vector that an edit adds, of the loss and of a point that is read, against differences. */
TEST(gradient_of_a_steering_vector)
{
    tn_transformer_desc d = tiny();
    world               w;
    tn_transformer      m;
    tn_tensor          *vector, *unused;
    double              g[4], worst = 0;
    d.recompute = true;
    REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
    for (int k = 0; k < 4; k++) {
        const double h = 1e-4;
        double       slope = steered_loss(&w, &m, &unused, h, k, false);
        slope = (slope - steered_loss(&w, &m, &unused, -h, k, false)) / (2 * h);
        tn_ctx_reset(w.ctx);
        steered_loss(&w, &m, &vector, 0, k, true);
        REQUIRE(CHECK(vector->grad != NULL) && CHECK_STATUS(tn_read(vector->grad, TN_F64, g, 4), TN_OK));
        test_raise(&worst, fabs(g[k] - slope));
        CHECK(fabs(slope) > 1e-4);
        tn_ctx_reset(w.ctx);
    }
    WORST("gradient of a steering vector against differences", worst, 1e-7);
    close_world(&w);
}

static tn_tensor *notes_dtype(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    const size_t n = strlen(name);
    const bool   scale = n > 6 && !strcmp(name + n - 6, ".scale");
    if (x->dtype != (scale ? TN_F32 : TN_BF16)) ++*(int *)user;
    return tn_cast(ctx, x, TN_F32);                         /* becomes x's dtype again */
}

TEST(points_in_bf16)
{
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        world               w;
        tn_transformer      m;
        kept                p;
        tn_tap              taps[2];
        int                 wrong = 0;
        REQUIRE(open_as(&w, TN_F32, TN_BF16, 3, 1, NULL));
        REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK) && stir(w.params, 3, 0.5));
        tn_tensor *ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
        tn_tensor *whole = tn_transformer_forward(w.ctx, &m, ids);
        CHECK(same_bits(run_kept(&p, w.ctx, &m, ids), whole));
        taps[0].points = taps[1].points = "*";
        taps[0].fn = taps[1].fn = notes_dtype;
        taps[0].user = taps[1].user = &wrong;
        double off = apart(tn_transformer_run(w.ctx, &m, ids, taps, 2), whole);
        if (!CHECK(off < 0.1) || !CHECK_INT(wrong, 0)) fprintf(test_out(), "in: %s, %g\n", what, off);
        close_world(&w);
    }
}

/* Edits, patterns and a scale in a captured step: a replay with other ids is the run with these. Taps are called once. */
TEST(runs_in_graphs)
{
    static const int32_t texts[3][4] = {{0, 1, 2, 3}, {4, 0, 4, 1}, {2, 2, 3, 0}};
    const int64_t        shape[2] = {1, 4}, wide[3] = {1, 4, 5};
    tn_transformer_desc  d = tiny();
    world                w;
    tn_transformer       m;
    tn_graph            *graph = NULL;
    tn_edit              edit = ZERO;
    tn_tap               taps[3];
    double               got[20], want[20];
    int                  called = 0;
    REQUIRE(open_as(&w, TN_F64, TN_REAL, 3, 1, capture_backend()));
    REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK) && stir(w.params, 3, 0.5));
    tn_tensor *ids = tn_tensor_create(w.ctx, TN_I32, 2, shape);
    tn_tensor *out = tn_tensor_create(w.ctx, TN_REAL, 3, wide);
    edit.heads = 1;
    edit.mean = true;
    taps[0].points = "*.attn.z"; taps[0].fn = tn_tap_edit; taps[0].user = &edit;
    taps[1].points = "*.pattern"; taps[1].fn = copies; taps[1].user = &called;
    taps[2].points = "norm.scale"; taps[2].fn = copies; taps[2].user = &called;
    for (int k = 0; k < 3; k++) {
        CHECK_STATUS(tn_write(ids, TN_I32, texts[k], 4), TN_OK);
        for (int step = 0; step < 2; step++) {
            if (step == 1 && k == 0) CHECK_STATUS(tn_graph_begin(w.ctx), TN_OK);
            if (step == 1 && k > 0) CHECK_STATUS(tn_graph_run(graph), TN_OK);
            else {
                tn_ctx_reset(w.ctx);
                tn_assign(out, tn_transformer_run(w.ctx, &m, ids, taps, 3));
            }
            if (step == 1 && k == 0 && CHECK_STATUS(tn_graph_end(w.ctx, &graph), TN_OK)) tn_graph_run(graph);
            CHECK_STATUS(tn_read(out, TN_F64, step ? got : want, 20), TN_OK);
        }
        CHECK(memcmp(got, want, sizeof got) == 0);
    }
    CHECK_INT(called, 4 * 3);
    CHECK_INT(capture_last->replays, 3);
    tn_graph_destroy(graph);
    close_world(&w);
}

/* ---- replaced by other numbers ---------------------------------------------------------------------------------- */

/* P[t,t-1] = 1, other weights 0 */
static tn_tensor *one_before(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    const int64_t T = x->shape[3], B = x->shape[0], H = x->shape[1];
    double       *p = doubles(B * H * T * T);
    (void)user;
    (void)name;
    for (int64_t i = 0; i < B * H; i++) for (int64_t t = 1; t < T; t++) p[(i * T + t) * T + t - 1] = 1;
    tn_tensor *y = tn_tensor_from(ctx, 4, x->shape, TN_F64, p);
    return y;
}

/* With patterns that read the token before, z is v of that token. With q1 of 0 a softmax weights all keys alike, a bilinear
   pattern is 0; with q1 = k1 = 0 and q2 as it is, a differential one has the second softmax only. */
TEST(what_follows_from_a_replacement)
{
    static const tn_attention_kind kinds[3] = {TN_ATTENTION_SOFTMAX, TN_ATTENTION_BILINEAR,
                                               TN_ATTENTION_DIFFERENTIAL_PLAIN};
    double shifted = 0, uniform = 0;
    for (int k = 0; k < 3; k++) {
        tn_transformer_desc d = tiny();
        world               w;
        tn_transformer      m;
        tn_tensor          *v = NULL, *z = NULL, *p = NULL, *of[2];
        tn_tap              taps[3];
        tn_edit             none = ZERO;
        double              weights[TEXTS * 2 * TOKENS * TOKENS], plain[TEXTS * 2 * TOKENS * TOKENS];
        d.attention = kinds[k];
        REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
        tn_tensor *ids = ids_of(w.ctx, &m.desc, TEXTS, TOKENS, 5);
        taps[0].points = "blocks.0.attn.pattern"; taps[0].fn = one_before; taps[0].user = NULL;
        taps[1].points = "blocks.0.attn.z"; taps[1].fn = tn_tap_read; taps[1].user = &z;
        taps[2].points = "blocks.0.attn.v"; taps[2].fn = tn_tap_read; taps[2].user = &v;
        REQUIRE(tn_transformer_run(w.ctx, &m, ids, taps, 3));
        test_raise(&shifted, apart(tn_slice(z, 1, 1, TOKENS), tn_slice(v, 1, 0, TOKENS - 1)));
        taps[0].points = "blocks.0.attn.q1"; taps[0].fn = tn_tap_edit; taps[0].user = &none;
        taps[1].points = "blocks.0.attn.pattern"; taps[1].user = &p;
        for (int64_t i = 0; i < 2; i++) {
            REQUIRE(tn_transformer_run(w.ctx, &m, ids, taps + i, 3 - i));
            of[i] = p;
        }
        CHECK_STATUS(tn_read(of[0], TN_F64, weights, tn_tensor_count(p)), TN_OK);
        CHECK_STATUS(tn_read(of[1], TN_F64, plain, tn_tensor_count(p)), TN_OK);
        CHECK(memcmp(weights, plain, sizeof plain) != 0);
        for (int64_t i = 0; i < TEXTS * 2 && k < 2; i++)
            for (int64_t t = 0; t < TOKENS; t++)
                for (int64_t j = 0; j < TOKENS; j++)
                    test_raise(&uniform, fabs(weights[(i * TOKENS + t) * TOKENS + j]
                                              - (k == 0 && j <= t ? 1 / (double)(t + 1) : 0)));
        if (k == 2)                                         /* the first softmax has equal weights: P1 - lambda P2 */
            for (int64_t i = 0; i < TEXTS * 2; i++) {
                double first = 0, second = 0;
                for (int64_t j = 0; j < 2; j++) {
                    first += weights[(i * TOKENS + 1) * TOKENS + j];
                    second += plain[(i * TOKENS + 1) * TOKENS + j];
                }
                test_raise(&uniform, fabs(first - second));     /* both are 1 - lambda */
            }
        close_world(&w);
    }
    WORST("heads that read the token before", shifted, 1e-15);
    WORST("patterns of queries of 0", uniform, 1e-15);
}

/* "*1.mlp" is of blocks 1 and 11: the text for * is not the shortest one. */
TEST(patterns_of_names)
{
    static const struct { const char *points; int called; } names[] = {
        {"*1.mlp", 2}, {"blocks.*", 12 * 15}, {"blocks.*.attn", 12}, {"*", 12 * 15 + 4}, {"blocks.1", 1}, {"**.z", 12},
        {"*.attn.*", 12 * 5}, {"blocks.1*.middle", 3}, {"e*d", 1}, {"*.scale", 25}
    };
    tn_transformer_desc d = tiny();
    world               w;
    tn_transformer      m;
    d.layers = 12;
    REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int    called = 0;
        tn_tap tap;
        tap.points = names[i].points;
        tap.fn = passes;
        tap.user = &called;
        CHECK(tn_transformer_run(w.ctx, &m, ids_of(w.ctx, &d, 1, 2, 5), &tap, 1) != NULL);
        if (!CHECK_INT(called, names[i].called)) fprintf(test_out(), "in: %s\n", names[i].points);
        tn_ctx_reset(w.ctx);
    }
    close_world(&w);
}

/* ---- errors --------------------------------------------------------------------------------------------------- */

static tn_tensor *returns_null(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    (void)ctx; (void)user; (void)name; (void)x;
    return NULL;
}

static tn_tensor *returns_half(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    (void)ctx; (void)user; (void)name;
    return tn_slice(x, 0, 0, 1);
}

static void run_fails(tn_ctx *ctx, const tn_transformer *m, const char *points, tn_tap_fn fn, void *user, tn_status status,
                      const char *part)
{
    tn_tap taps[2];
    taps[0].points = "*"; taps[0].fn = passes; taps[0].user = user;
    taps[1].points = points; taps[1].fn = fn; taps[1].user = user;
    CHECK(!tn_transformer_run(ctx, m, ids_of(ctx, &m->desc, TEXTS, TOKENS, 5), taps + 1, 1));
    CHECK_ERROR(ctx, status, part);
}

TEST(runs_that_fail)
{
    tn_transformer_desc d = tiny();
    world               w;
    tn_transformer      m;
    tn_edit             e = ZERO;
    REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
    run_fails(w.ctx, &m, "blocks.0.attn.patern", passes, &e, TN_ERR_ARG, "transformer_run: the model has no point "
              "\"blocks.0.attn.patern\"; did you mean blocks.0.attn.pattern?");
    run_fails(w.ctx, &m, "blocks.1.ml", passes, &e, TN_ERR_ARG, "did you mean blocks.1.mlp?");
    run_fails(w.ctx, &m, "blocks.2.attn.z", passes, &e, TN_ERR_ARG, "did you mean blocks.0.attn.z?");
    run_fails(w.ctx, &m, "*.attn.q2", passes, &e, TN_ERR_ARG, "did you mean");
    run_fails(w.ctx, &m, "", passes, &e, TN_ERR_ARG, "has no point \"\"");
    run_fails(w.ctx, &m, NULL, passes, &e, TN_ERR_ARG, "transformer_run: points of tap 0 is NULL");
    run_fails(w.ctx, &m, "*", NULL, &e, TN_ERR_ARG, "transformer_run: fn of tap 0 is NULL");
    run_fails(w.ctx, &m, "*.z", returns_null, &e, TN_ERR_ARG, "transformer_run: the tap of blocks.0.attn.z returned NULL");
    run_fails(w.ctx, &m, "*.1.attn.z", returns_half, &e, TN_ERR_SHAPE, "transformer_run: the tap of blocks.1.attn.z "
              "returned [1,5,2,2], expected [2,5,2,2]");
    e.heads = 1; e.head = 2;
    run_fails(w.ctx, &m, "*.z", tn_tap_edit, &e, TN_ERR_SHAPE, "tap_edit: blocks.0.attn.z: head");
    run_fails(w.ctx, &m, "embed", tn_tap_edit, &e, TN_ERR_ARG, "tap_edit: embed has no heads, expected heads 0");
    e.head = 0;
    run_fails(w.ctx, &m, "*.mlp.encoders", tn_tap_edit, &e, TN_ERR_ARG, "tap_edit: blocks.0.mlp.encoders has no heads");
    e.heads = 0; e.tokens = 9;
    run_fails(w.ctx, &m, "*.z", tn_tap_edit, &e, TN_ERR_SHAPE, "tap_edit: blocks.0.attn.z: token");
    e.tokens = -1;
    run_fails(w.ctx, &m, "*.z", tn_tap_edit, &e, TN_ERR_SHAPE, "tap_edit: blocks.0.attn.z: token is 0 and tokens -1, "
              "expected a range within 0 to 4");
    e.tokens = 0;
    tn_tensor *wide = tn_tensor_3d(w.ctx, TN_REAL, 7, 1, 1);
    e.value = wide;
    run_fails(w.ctx, &m, "embed", tn_tap_edit, &e, TN_ERR_SHAPE, "[7,1,1]");
    tn_tensor *ids = ids_of(w.ctx, &d, TEXTS, TOKENS, 5);
    REFUSED(w.ctx, tn_transformer_run(w.ctx, &m, ids, NULL, 1), TN_ERR_ARG, "transformer_run: n is 1 with taps NULL");
    REFUSED(w.ctx, tn_transformer_run(w.ctx, NULL, ids, NULL, 0), TN_ERR_ARG, "the model is NULL");
    CHECK(!tn_transformer_run(NULL, &m, ids, NULL, 0));
    CHECK(!tn_transformer_attribution(w.ctx, &m, ids, ids_of(w.ctx, &d, TEXTS, 2, 5), NULL));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "transformer_attribution: targets are [2,2], expected [2,5] as ids");
    CHECK_INT(tn_transformer_points(NULL, 1, 1, NULL, 0), 0);
    CHECK_INT(tn_transformer_parts(NULL, NULL, 0), 0);
    close_world(&w);
    d.norm_place = TN_PLACE_POST;
    REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
    ids = ids_of(w.ctx, &d, TEXTS, TOKENS, 5);
    CHECK(!tn_transformer_attribution(w.ctx, &m, ids, ids, NULL));
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "norm_place is TN_PLACE_POST, expected another place for an attribution");
    close_world(&w);
}

TEST_MAIN(every_point_read, copies_in_place_of_points, points_fit_together, attribution_sums_to_logits,
          parts_do_not_depend_on_the_size_of_the_stream, edits_by_hand, patching_and_steering, gradients_through_points,
          gradient_of_a_steering_vector, points_in_bf16, runs_in_graphs,
          what_follows_from_a_replacement, patterns_of_names, runs_that_fail)
