/* test_run.c: runs of a transformer whose points are read or replaced; edits; attribution. */

#include "model.h"

enum { TOKENS = 5, TEXTS = 2 };

static int64_t tokens_of(const tn_transformer_desc *d) { return d->positions == TN_POSITIONS_LEARNED ? 4 : TOKENS; }

/* Whether both have the same shape and bits. */
static bool same_bits(const tn_tensor *a, const tn_tensor *b)
{
    const int64_t n = a ? tn_tensor_count(a) : 0;
    double       *u = (double *)malloc(sizeof *u * (size_t)(2 * n + 1));
    bool          same = a && b && tn_tensor_count(b) == n && tn_read(a, TN_F64, u, n) == TN_OK
                         && tn_read(b, TN_F64, u + n, n) == TN_OK && memcmp(u, u + n, sizeof *u * (size_t)n) == 0;
    free(u);
    return same;
}

/* The largest |a - b| over the largest |b| */
static double apart(const tn_tensor *a, const tn_tensor *b)
{
    const int64_t n = a ? tn_tensor_count(a) : 0;
    double       *u = (double *)malloc(sizeof *u * (size_t)(2 * n + 1)), worst = 0, size = 1e-300;
    int64_t       i;
    if (!a || !b || tn_tensor_count(b) != n || tn_read(a, TN_F64, u, n) != TN_OK || tn_read(b, TN_F64, u + n, n) != TN_OK)
        worst = HUGE_VAL;
    for (i = 0; i < n && worst < HUGE_VAL; i++) {
        test_raise(&worst, fabs(u[i] - u[n + i]));
        test_raise(&size, fabs(u[n + i]));
    }
    free(u);
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
    int k, t;
    for (k = 0; k < VARIANTS; k++) {
        for (t = 0; t < 2; t++) {
            const char         *what;
            tn_transformer_desc d = variant(k, &what);
            const tn_dtype      dtype = t ? TN_F32 : TN_F64;
            tn_point            points[80];
            world               w;
            tn_transformer      m;
            listing             l;
            tn_tap              tap;
            tn_tensor          *ids, *whole, *run;
            REQUIRE(model_on(&w, dtype, &d, &m, 3));
            ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
            whole = tn_transformer_forward(w.ctx, &m, ids);
            memset(&l, 0, sizeof l);
            l.points = points;
            l.count = tn_transformer_points(&m, TEXTS, tokens_of(&d), points, 80);
            CHECK(l.count <= 80 && l.count > 10 * m.desc.layers);
            tap.points = "*";
            tap.fn = checks_list;
            tap.user = &l;
            run = tn_transformer_run(w.ctx, &m, ids, &tap, 1);
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
    int    k;
    for (k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_point            points[80];
        world               w;
        tn_transformer      m;
        tn_tensor          *ids, *whole;
        int64_t             n, i;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
        n = tn_transformer_points(&m, TEXTS, tokens_of(&d), points, 80);
        for (i = 0; i < n; i++) {
            int    called = 0;
            double off;
            tn_tap tap;
            tap.points = points[i].name;
            tap.fn = copies;
            tap.user = &called;
            ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
            whole = tn_transformer_forward(w.ctx, &m, ids);
            off = apart(tn_transformer_run(w.ctx, &m, ids, &tap, 1), whole);
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
    int64_t i;
    k->n = tn_transformer_points(m, ids->shape[0], ids->shape[1], k->points, KEPT);
    if (!CHECK(k->n <= KEPT)) return NULL;
    for (i = 0; i < k->n; i++) {
        k->taps[i].points = k->points[i].name;
        k->taps[i].fn = tn_tap_read;
        k->taps[i].user = &k->at[i];
    }
    return tn_transformer_run(ctx, m, ids, k->taps, k->n);
}

/* NULL if the model has no such point */
static tn_tensor *of_point(const kept *k, const char *name)
{
    int64_t i;
    for (i = 0; i < k->n; i++) if (!strcmp(k->points[i].name, name)) return k->at[i];
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
    int    k;
    for (k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        const bool          post = d.place == TN_PLACE_POST;
        world               w;
        tn_transformer      m;
        kept                p;
        tn_tensor          *ids, *logits, *x, *v, *z;
        int64_t             l;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
        ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
        logits = run_kept(&p, w.ctx, &m, ids);
        REQUIRE(logits);
        x = of_point(&p, "embed");
        for (l = 0; l < m.desc.layers && !post; l++) {
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
            v = POINT(".attn.v");
            z = POINT(".attn.z");
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
        test_raise(&lens, apart(tn_transformer_lens(w.ctx, &m, x), logits));
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
    double       *u = (double *)malloc(sizeof *u * (size_t)(n * vocab));
    int32_t      *a = (int32_t *)malloc(sizeof *a * (size_t)(2 * n));
    int64_t       i;
    CHECK_STATUS(tn_read(logits, TN_F64, u, n * vocab), TN_OK);
    CHECK_STATUS(tn_read(targets, TN_I32, a, n), TN_OK);
    if (others) CHECK_STATUS(tn_read(others, TN_I32, a + n, n), TN_OK);
    for (i = 0; i < n; i++) to[i] = u[i * vocab + a[i]] - (others ? u[i * vocab + a[n + i]] : 0);
    free(a);
    free(u);
}

TEST(attribution_sums_to_logits)
{
    double worst = 0, heads = 0;
    int    k, two, texts = 0;
    for (k = 0; k < VARIANTS; k++) {
        for (two = 0; two < 2; two++) {
            const char         *what;
            tn_transformer_desc d = variant(k, &what);
            double              want[TEXTS * TOKENS], sum[TEXTS * TOKENS];
            tn_point            parts[40];
            world               w;
            tn_transformer      m;
            kept                p;
            tn_tensor          *ids, *targets, *others, *logits, *a, *of;
            int64_t             i, n;
            if (d.place == TN_PLACE_POST) continue;
            REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
            ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
            targets = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 6);
            others = two ? ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 7) : NULL;
            logits = run_kept(&p, w.ctx, &m, ids);
            a = tn_transformer_attribution(w.ctx, &m, ids, targets, others);
            REQUIRE(a && logits);
            CHECK_INT(a->shape[2], tn_transformer_parts(&m, parts, 40));
            n = tn_tensor_count(ids);
            differences(d.softcap > 0 ? of_point(&p, "head") : logits, targets, others, want);
            CHECK_STATUS(tn_read(tn_sum_axis(w.ctx, a, 2), TN_F64, sum, n), TN_OK);
            for (i = 0; i < n; i++) test_raise(&worst, fabs(sum[i] - want[i]) / (1 + fabs(want[i])));
            /* the part of one head, by an ablation after which the last norm keeps its scale */
            if (!d.no_norm && m.desc.layers == 2) {
                static const char *const name = "blocks.1.attn.z";
                tn_edit    edit, frozen;
                tn_tap     taps[3];
                double     without[TEXTS * TOKENS], part[TEXTS * TOKENS];
                tn_tensor *run;
                memset(&edit, 0, sizeof edit);
                memset(&frozen, 0, sizeof frozen);
                edit.heads = 1;
                frozen.value = of_point(&p, "norm.scale");
                taps[0].points = name; taps[0].fn = tn_tap_edit; taps[0].user = &edit;
                taps[1].points = "norm.scale"; taps[1].fn = tn_tap_edit; taps[1].user = &frozen;
                /* the MLP after it reads what it did */
                taps[2].points = "blocks.1.mlp"; taps[2].fn = tn_tap_edit;
                frozen.value = of_point(&p, "norm.scale");
                if (d.place == TN_PLACE_PRE) {
                    tn_edit mlp;
                    memset(&mlp, 0, sizeof mlp);
                    mlp.value = of_point(&p, "blocks.1.mlp");
                    taps[2].user = &mlp;
                    run = tn_transformer_run(w.ctx, &m, ids, taps, 3);
                    REQUIRE(run);
                    if (d.softcap == 0) {
                        differences(run, targets, others, without);
                        for (i = 0; i < a->shape[2] && strcmp(parts[i].name, "blocks.1.attn.0"); i++) {}
                        of = tn_slice(a, 2, i, i + 1);
                        CHECK_STATUS(tn_read(of, TN_F64, part, n), TN_OK);
                        for (i = 0; i < n; i++) test_raise(&heads, fabs(want[i] - without[i] - part[i]));
                        texts++;
                    }
                }
            }
            close_world(&w);
        }
    }
    CHECK(texts > 20);
    WORST("sum of the parts - the logit", worst, 1e-12);
    WORST("a head's part - its ablation in the frozen network", heads, 1e-12);
}
TEST_MAIN(every_point_read, copies_in_place_of_points, points_fit_together, attribution_sums_to_logits)
