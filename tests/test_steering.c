/* test_steering.c: changes of a run and their parts against frozen networks that are run with taps; two models aligned. */

#include "model.h"

enum { TOKENS = 4, TEXTS = 2, MOST = 128 };

/* The largest |a - b| over `size` */
static double apart(const tn_tensor *a, const tn_tensor *b, double size)
{
    const int64_t n = b ? tn_tensor_count(b) : 0;
    double       *u = doubles(2 * n), worst = 0;
    if (!a || !b || tn_tensor_count(a) != n || tn_read(a, TN_F64, u, n) != TN_OK || tn_read(b, TN_F64, u + n, n) != TN_OK)
        worst = HUGE_VAL;
    for (int64_t i = 0; i < n && worst < HUGE_VAL; i++) test_raise(&worst, fabs(u[i] - u[n + i]));
    return worst / size;
}

static double norm_of(world *w, tn_tensor *x) { return sqrt(tn_item(tn_sum(w->ctx, tn_mul(w->ctx, x, x)))); }

static tn_tensor *random_tensor(world *w, int rank, const int64_t *shape)
{
    double  v[256];
    int64_t n = 1;
    for (int k = 0; k < rank; k++) n *= shape[k];
    if (!CHECK(n <= 256)) return NULL;
    for (int64_t i = 0; i < n; i++) v[i] = test_random_real(&w->seed);
    return tn_tensor_from(w->ctx, rank, shape, TN_F64, v);
}

static tn_tensor *random_vector(world *w, int64_t n) { return random_tensor(w, 1, &n); }

static tn_tensor *part(const tn_circuit_steering *s, int64_t i) { return tn_slice(s->parts, 0, i, i + 1); }

/* ---- the frozen network, by taps alone ------------------------------------------------------------------------- */

typedef struct held { int64_t count, at; bool replace; tn_tensor *x[MOST]; } held;

static tn_tensor *hold(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    held *h = (held *)user;
    (void)ctx;
    (void)name;
    if (h->replace) return h->at < h->count ? h->x[h->at++] : NULL;
    if (h->count < MOST) h->x[h->count++] = x;
    return x;
}

/* The logits before softcap of a run, without an edit; with one, those with the patterns and scales of the run before, and,
   if `hidden`, its hidden units. */
static tn_tensor *held_run(world *w, const tn_transformer *m, tn_tensor *ids, held *h, bool hidden,
                           const tn_circuit_steering_desc *d)
{
    tn_tensor *logits = NULL;
    tn_tap     taps[5];
    tn_edit    edit = d->edit;
    int64_t    n = 0;
    h->at = 0;
    taps[n].points = "*.pattern"; taps[n].fn = hold; taps[n++].user = h;
    if (!m->desc.no_norm) { taps[n].points = "*.scale"; taps[n].fn = hold; taps[n++].user = h; }
    if (hidden) { taps[n].points = "*.mlp.hidden"; taps[n].fn = hold; taps[n++].user = h; }
    if (h->replace) { taps[n].points = d->point; taps[n].fn = tn_tap_edit; taps[n++].user = &edit; }
    taps[n].points = m->desc.softcap > 0 ? "head" : "logits"; taps[n].fn = tn_tap_read; taps[n++].user = &logits;
    if (!tn_transformer_run(w->ctx, m, ids, taps, n)) logits = NULL;
    h->replace = true;
    return logits;
}

typedef struct errors { double frozen, direct, whole, measured, power; int tried; } errors;

static void compare(world *w, const tn_transformer *m, const tn_circuit_steering_desc *d, errors *e)
{
    const int64_t            T = m->desc.context < TOKENS ? m->desc.context : (int64_t)TOKENS;
    tn_circuit_steering_desc again = *d;
    tn_circuit_steering      s, twice;
    tn_tensor               *ids = ids_of(w->ctx, &m->desc, TEXTS, T, 3), *y = NULL;
    tn_tap                   taps[2];
    held                     h = ZERO;
    if (!CHECK_STATUS(tn_circuit_steering_of(w->ctx, m, ids, d, &s), TN_OK)) return;
    e->tried++;
    tn_tensor *logits = held_run(w, m, ids, &h, false, d);
    double     size = norm_of(w, logits);
    test_raise(&e->frozen, apart(s.logits, logits, size));
    test_raise(&e->frozen, apart(s.frozen, tn_sub(w->ctx, held_run(w, m, ids, &h, false, d), logits), size));
    memset(&h, 0, sizeof h);
    held_run(w, m, ids, &h, true, d);
    test_raise(&e->direct, apart(part(&s, 0), tn_sub(w->ctx, held_run(w, m, ids, &h, true, d), logits), size));
    test_raise(&e->whole, apart(tn_sum_axis(w->ctx, s.parts, 0), s.frozen, size));
    test_raise(&e->whole, s.rest * norm_of(w, s.frozen) / size);
    taps[0].points = d->point; taps[0].fn = tn_tap_edit; taps[0].user = &again.edit;
    taps[1].points = m->desc.softcap > 0 ? "head" : "logits"; taps[1].fn = tn_tap_read; taps[1].user = &y;
    tn_transformer_run(w->ctx, m, ids, taps, 2);
    test_raise(&e->measured, apart(s.measured, tn_sub(w->ctx, y, logits), size));
    if (d->edit.keep == 1) again.edit.value = tn_scale(w->ctx, d->edit.value, 2);
    if (d->edit.keep == 1 && CHECK_STATUS(tn_circuit_steering_of(w->ctx, m, ids, &again, &twice), TN_OK)) {
        for (int64_t i = 0; i <= s.orders; i++) {
            y = tn_scale(w->ctx, part(&s, i), i ? pow(2, (double)i) : 2);
            test_raise(&e->power, apart(part(&twice, i), y, size));
        }
        tn_circuit_steering_destroy(&twice);
    }
    tn_circuit_steering_destroy(&s);
    CHECK_CTX(w->ctx);
}

static void worst_of(const errors *e)
{
    WORST("frozen network against taps, over |logits|", e->frozen, 1e-12);
    WORST("direct part against frozen hidden units", e->direct, 1e-12);
    WORST("sum of parts against the frozen network", e->whole, 1e-12);
    WORST("measured against tap_edit", e->measured, 1e-12);
    WORST("parts of a vector twice as long", e->power, 1e-11);
}

static bool all_bilinear(const tn_transformer *m)
{
    for (int64_t l = 0; l < m->desc.layers; l++) if (m->blocks[l].mlp.desc.kind != TN_MLP_BILINEAR) return false;
    return true;
}

/* Every option of a transformer; s at the embedding, between attention and MLP, and in hidden units. */
TEST(parts_sum_to_the_frozen_network)
{
    static const char *const points[3] = {"embed", "blocks.0.middle", "blocks.1.mlp.hidden"};
    errors e = ZERO;
    for (int k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_transformer      m;
        world               w;
        REQUIRE(model_on(&w, TN_F64, &d, &m, (uint64_t)k + 1));
        for (int p = 0; all_bilinear(&m) && p < (d.layers > 1 ? 3 : 2); p++) {
            tn_circuit_steering_desc sd = ZERO;
            const int64_t            after = d.layers - (p == 2 ? 2 : 0);        /* MLPs */
            sd.point = points[p];
            sd.edit.keep = 1;
            sd.edit.value = random_vector(&w, p == 2 ? m.blocks[1].mlp.desc.hidden : d.dim);
            sd.edit.token = d.context > 2 ? 2 : 0;
            sd.edit.tokens = 1;
            sd.orders = (int64_t)pow((double)m.blocks[0].mlp.desc.order, (double)after);
            compare(&w, &m, &sd, &e);
        }
        close_world(&w);
    }
    CHECK(e.tried > 30);
    worst_of(&e);
}

/* An ablated head, a patched stream: what they change is the vector. */
TEST(any_edit_is_a_vector)
{
    const char              *what;
    tn_transformer_desc      d = variant(4, &what);
    tn_circuit_steering_desc sd = ZERO;
    tn_transformer           m;
    world                    w;
    errors                   e = ZERO;
    int64_t                  shape[3] = {TEXTS, TOKENS, 0};
    REQUIRE(model_on(&w, TN_F64, &d, &m, 5));
    shape[2] = d.dim;
    sd.orders = 4;
    sd.point = "blocks.0.attn.z";
    sd.edit.head = 1;
    sd.edit.heads = 1;
    sd.edit.mean = true;
    compare(&w, &m, &sd, &e);
    sd.edit.heads = 0;
    sd.edit.mean = false;
    sd.point = "blocks.0.attn";
    sd.edit.value = random_tensor(&w, 3, shape);
    compare(&w, &m, &sd, &e);
    sd.orders = 1;
    sd.point = "blocks.1";                                          /* no MLP follows */
    sd.edit.keep = 1;
    compare(&w, &m, &sd, &e);
    sd.point = "norm";
    compare(&w, &m, &sd, &e);
    worst_of(&e);
    close_world(&w);
}

/* MLPs that are not bilinear, of each kind, before the point: their parts are zero. */
TEST(other_mlps_may_come_before)
{
    static const char *const points[6] = {"blocks.0.mlp.hidden", "blocks.0.mlp.out", "blocks.0.mlp", "blocks.0",
                                          "blocks.1.attn.v", "blocks.0.norm2_out"};
    errors e = ZERO;
    for (int k = 1; k <= TN_MLP_GEGLU_TANH; k++) {
        tn_transformer_desc      d = tiny();
        tn_circuit_steering_desc sd;
        tn_circuit_steering      s;
        tn_transformer           m;
        world                    w;
        d.mlp_count = 2;
        d.mlp_cycle[0] = (tn_mlp_kind)k;
        d.mlp_cycle[1] = TN_MLP_BILINEAR;
        d.mlp_bias = k % 2;
        d.mlp_scale = 0.5;
        d.norm_place = (tn_place)(k % 3);
        REQUIRE(model_on(&w, TN_F64, &d, &m, (uint64_t)k));
        for (int p = 0; p < (d.norm_place == TN_PLACE_SANDWICH ? 6 : 5); p++) {
            memset(&sd, 0, sizeof sd);
            sd.point = points[p];
            sd.edit.keep = 1;
            sd.edit.value = tn_scale(w.ctx, random_vector(&w, p == 0 ? d.hidden : p == 4 ? 2 : d.dim), 0.05);
            compare(&w, &m, &sd, &e);
        }
        sd.point = "blocks.0.mlp.encoders";
        sd.edit.value = NULL;
        FAILS(w.ctx, tn_circuit_steering_of(w.ctx, &m, ids_of(w.ctx, &d, 1, 2, 3), &sd, &s), TN_ERR_ARG, "the MLP of block 0 is");
        close_world(&w);
    }
    CHECK_INT(e.tried, 5 * 10 + 3);
    worst_of(&e);
}

/* One block: the parts are those of the weights, 2 B(s,x) and B(s,s), with the denominators of the run. Without norms the
   frozen network is the model, for patterns come before. */
TEST(parts_of_one_block_from_its_weights)
{
    double worst = 0, model = 0, plain = 0;
    for (int k = 0; k < 4; k++) {                                       /* biases, RMSNorm, LayerNorm with biases, no norm */
        tn_transformer_desc      d = tiny();
        tn_circuit_steering_desc sd = ZERO;
        tn_circuit_steering      s;
        tn_transformer           m;
        world                    w;
        tn_tensor               *x = NULL, *scale[2] = {NULL, NULL}, *v, *square = NULL;
        tn_tap                   taps[3];
        d.layers = 1;
        d.mlp_scale = 0.8;
        d.mlp_bias = d.mlp_out_bias = k != 1;
        d.norm = k == 2 ? TN_NORM_LAYER : TN_NORM_RMS;
        d.norm_bias = k == 2;
        d.no_norm = k == 3;
        REQUIRE(model_on(&w, TN_F64, &d, &m, (uint64_t)k + 7));
        tn_tensor *ids = ids_of(w.ctx, &d, TEXTS, TOKENS, 3);
        sd.point = "blocks.0.middle";
        sd.edit.keep = 1;
        sd.edit.value = v = random_vector(&w, d.dim);
        REQUIRE(CHECK_STATUS(tn_circuit_steering_of(w.ctx, &m, ids, &sd, &s), TN_OK));
        CHECK_INT(s.orders, 2);
        taps[0].points = "blocks.0.middle"; taps[0].fn = tn_tap_read; taps[0].user = &x;
        taps[1].points = "blocks.0.norm2.scale"; taps[1].fn = tn_tap_read; taps[1].user = &scale[0];
        taps[2].points = "norm.scale"; taps[2].fn = tn_tap_read; taps[2].user = &scale[1];
        tn_transformer_run(w.ctx, &m, ids, taps, d.no_norm ? 1 : 3);
        double      size = norm_of(&w, s.logits);
        tn_tensor  *u = tn_circuit_unembedding(w.ctx, &m);
        tn_cp *cp = tn_circuit_mlp(w.ctx, &m, 0);
        tn_circuit *c = tn_circuit_steer(w.ctx, cp, v, &square);
        REQUIRE(CHECK(c && cp && u && x));
        CHECK_INT(c->columns, cp->in[0]);
        tn_tensor *read = d.no_norm ? x : tn_mul(w.ctx, x, scale[0]); /* centring is in the operator */
        if (cp->constant) read = tn_append_one(w.ctx, read);
        tn_tensor *y = tn_affine(w.ctx, read, tn_circuit_rows(w.ctx, c, 0, d.dim), NULL);
        y = tn_affine(w.ctx, y, u, NULL);
        if (!d.no_norm) y = tn_mul(w.ctx, tn_mul(w.ctx, y, scale[0]), scale[1]);
        test_raise(&worst, apart(part(&s, 1), y, size));
        y = tn_affine(w.ctx, square, u, NULL);
        y = tn_add(w.ctx, tn_scale(w.ctx, s.logits, 0), y);
        if (!d.no_norm) y = tn_mul(w.ctx, tn_mul(w.ctx, tn_mul(w.ctx, y, scale[0]), scale[0]), scale[1]);
        test_raise(&worst, apart(part(&s, 2), y, size));
        y = tn_add(w.ctx, tn_scale(w.ctx, s.logits, 0), tn_affine(w.ctx, v, u, NULL));
        test_raise(&worst, apart(part(&s, 0), d.no_norm ? y : tn_mul(w.ctx, y, scale[1]), size));
        if (d.no_norm) test_raise(&model, apart(s.measured, s.frozen, size));
        /* of the operator: B(x+s,x+s) - B(x,x) */
        read = tn_slice(read, -1, 0, d.dim);
        y = tn_sub(w.ctx, tn_cp_apply(w.ctx, cp, tn_add(w.ctx, read, v)), tn_cp_apply(w.ctx, cp, read));
        read = cp->constant ? tn_append_one(w.ctx, read) : read;
        y = tn_sub(w.ctx, tn_sub(w.ctx, y, square), tn_affine(w.ctx, read, tn_circuit_rows(w.ctx, c, 0, d.dim), NULL));
        test_raise(&plain, norm_of(&w, y));
        tn_tensor_destroy(square);
        tn_circuit_destroy(c);
        tn_cp_destroy(cp);
        tn_circuit_steering_destroy(&s);
        close_world(&w);
    }
    WORST("parts of one block from its weights", worst, 1e-12);
    WORST("2 B(s,x) + B(s,s) against the operator", plain, 1e-12);
    WORST("without norms measured = frozen", model, 1e-12);
}

/* ---- two models -------------------------------------------------------------------------------------------------- */

/* The model b as a with hidden units in reverse order, encoders swapped and scaled, and heads swapped. */
static void rearrange(world *w, const tn_transformer *a, const tn_transformer *b, int64_t block)
{
    const tn_mlp *from = &a->blocks[block].mlp, *to = &b->blocks[block].mlp;
    const int64_t h = from->desc.hidden;
    for (int64_t i = 0; i < h; i++) {
        const double s = i % 2 ? -2 : 0.5;
        for (int e = 0; e < 2; e++) {
            tn_tensor *x = tn_slice(tn_mlp_encoder(from, e), 0, i, i + 1);
            tn_assign(tn_slice(tn_mlp_encoder(to, 1 - e), 0, h - 1 - i, h - i), tn_scale(w->ctx, x, e ? s : 1));
        }
        tn_assign(tn_slice(to->p, 1, h - 1 - i, h - i), tn_scale(w->ctx, tn_slice(from->p, 1, i, i + 1), 1 / s));
    }
    for (int64_t i = 0; i < 2; i++) {
        tn_assign(tn_attention_head(&b->blocks[block].attn, 1 - i, TN_HEAD_V),
                  tn_attention_head(&a->blocks[block].attn, i, TN_HEAD_V));
        tn_assign(tn_attention_head(&b->blocks[block].attn, 1 - i, TN_HEAD_O),
                  tn_attention_head(&a->blocks[block].attn, i, TN_HEAD_O));
    }
}

TEST(models_are_aligned_block_by_block)
{
    double worst = 0;
    for (int tokens = 0; tokens < 2; tokens++) {
        tn_transformer_desc  d = tiny();
        tn_transformer       a, b;
        tn_circuit_alignment r;
        world                w;
        d.vocab = 9;
        d.hidden = 5;
        REQUIRE(model_on(&w, TN_F64, &d, &a, 3));
        REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "b", &d, &b), TN_OK) && stir(w.params, 4, 0.5));
        for (int l = 0; l < 2; l++) {
            double cosine[5], heads[4];
            CHECK_STATUS(tn_circuit_align(w.ctx, &a, &b, l, tokens, &r), TN_OK);
            CHECK(fabs(r.cosine) < 0.9);                            /* different models */
            tn_circuit_alignment_destroy(&r);
            rearrange(&w, &a, &b, l);
            tn_assign(b.blocks[l].norm1.gain, a.blocks[l].norm1.gain);
            tn_assign(b.blocks[l].norm2.gain, a.blocks[l].norm2.gain);
            if (tokens) {
                tn_assign(b.embed.w, a.embed.w);
                tn_assign(b.head.w, a.head.w);
                tn_assign(b.norm.gain, a.norm.gain);
            }
            REQUIRE(CHECK_STATUS(tn_circuit_align(w.ctx, &a, &b, l, tokens, &r), TN_OK));
            test_raise(&worst, fabs(r.cosine - 1));
            CHECK_STATUS(tn_read(r.cosines, TN_F64, cosine, 5), TN_OK);
            CHECK_STATUS(tn_read(r.heads, TN_F64, heads, 4), TN_OK);
            for (int i = 0; i < 5; i++) test_raise(&worst, fabs(cosine[i] - 1));
            test_raise(&worst, fabs(heads[1] - 1));
            test_raise(&worst, fabs(heads[2] - 1));
            CHECK(fabs(heads[0]) < 0.99 && fabs(heads[3]) < 0.99);
            test_raise(&worst, apart(r.b->p, r.a->p, 1));
            test_raise(&worst, apart(r.b->f[0], r.a->f[0], 1));
            test_raise(&worst, apart(r.b->f[1], r.a->f[1], 1));
            CHECK_INT(r.a->in[0], tokens ? d.vocab : d.dim);
            tn_circuit_alignment_destroy(&r);
        }
        close_world(&w);
    }
    WORST("units, heads and weights of a model rearranged", worst, 1e-12);
}

static tn_tensor *table_of(world *w, tn_circuit *c)
{
    tn_tensor *t = c ? tn_matmul(w->ctx, c->left[0], tn_transpose(c->right[0], 0, 1)) : NULL;
    tn_circuit_destroy(c);
    return t;
}

/* In tokens a model whose stream has other coordinates is the same model: a permuted stream, which RMSNorm does not see. */
TEST(tokens_do_not_depend_on_the_stream)
{
    const int32_t        turn[4] = {2, 0, 3, 1};
    tn_transformer_desc  d = tiny();
    tn_transformer       a, b, wide;
    tn_circuit_alignment r;
    world                w;
    int64_t              four = 4;
    double               heads[6], worst = 0, apart_ = 0;
    d.no_norm_gain = true;
    REQUIRE(model_on(&w, TN_F64, &d, &a, 3));
    REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "b", &d, &b), TN_OK));
    tn_tensor *order = tn_tensor_from(w.ctx, 1, &four, TN_I32, turn);
    tn_assign(b.embed.w, tn_gather(w.ctx, a.embed.w, 1, order));
    tn_assign(b.head.w, tn_gather(w.ctx, a.head.w, 1, order));
    for (int l = 0; l < 2; l++) {
        tn_assign(b.blocks[l].mlp.w, tn_gather(w.ctx, a.blocks[l].mlp.w, 2, order));
        tn_assign(b.blocks[l].mlp.p, tn_gather(w.ctx, a.blocks[l].mlp.p, 0, order));
        tn_tensor *x = tn_gather(w.ctx, a.blocks[l].attn.v, 1, order);
        tn_assign(b.blocks[l].attn.v, x);
        tn_assign(b.blocks[l].attn.o, tn_gather(w.ctx, a.blocks[l].attn.o, 0, order));
        REQUIRE(CHECK_STATUS(tn_circuit_align(w.ctx, &a, &b, l, true, &r), TN_OK));
        tn_read(r.heads, TN_F64, heads, 4);
        test_raise(&worst, fabs(r.cosine - 1));
        test_raise(&worst, fabs(heads[0] - 1));
        test_raise(&worst, fabs(heads[3] - 1));
        tn_circuit_alignment_destroy(&r);
        REQUIRE(CHECK_STATUS(tn_circuit_align(w.ctx, &a, &b, l, false, &r), TN_OK));
        CHECK(fabs(r.cosine) < 0.99);
        tn_circuit_alignment_destroy(&r);
    }
    WORST("a permuted stream, in tokens", worst, 1e-12);
    d.dim = 6;
    d.heads = 3;
    REQUIRE(CHECK_STATUS(tn_transformer_init(w.params, "wide", &d, &wide), TN_OK));
    CHECK_STATUS(tn_circuit_align(w.ctx, &a, &wide, 1, true, &r), TN_OK);
    CHECK_STATUS(tn_read(r.heads, TN_F64, heads, 6), TN_OK);                /* [2,3], and of the OV circuits themselves: */
    for (int l = 0; l < 6; l++) {
        tn_circuit_desc at = ZERO;
        tn_tensor      *ov[2];
        at.block = 1;
        at.norm_scale = 1;
        at.tokens = true;
        at.head = l / 3;
        ov[0] = table_of(&w, tn_circuit_ov(w.ctx, &a, &at));
        at.head = l % 3;
        ov[1] = table_of(&w, tn_circuit_ov(w.ctx, &wide, &at));
        tn_tensor *x = tn_sum(w.ctx, tn_mul(w.ctx, ov[0], ov[1]));
        test_raise(&apart_, fabs(heads[l] - tn_item(x) / (norm_of(&w, ov[0]) * norm_of(&w, ov[1]))));
    }
    WORST("heads of two models", apart_, 1e-12);
    tn_circuit_alignment_destroy(&r);
    FAILS(w.ctx, tn_circuit_align(w.ctx, &a, &wide, 1, false, &r), TN_ERR_SHAPE, "align: the inputs have 4 and 6 elements");
    close_world(&w);
}

TEST(refusals_by_name)
{
    tn_transformer_desc      d = tiny();
    tn_circuit_steering_desc sd = ZERO;
    tn_circuit_steering      s;
    tn_circuit_alignment     r;
    tn_transformer           m;
    tn_tensor               *square;
    world                    w;
    d.mlp_count = 2;
    d.mlp_cycle[1] = TN_MLP_SWIGLU;
    REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
    tn_tensor *ids = ids_of(w.ctx, &d, TEXTS, TOKENS, 3);
    CHECK(tn_circuit_steering_of(w.ctx, &m, ids, &sd, &s) == TN_ERR_ARG && !s.parts);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "circuit_steering: point is NULL");
    sd.point = "blocks.1.middle";
    sd.edit.keep = 1;
    sd.edit.value = random_vector(&w, d.dim);
    CHECK_STATUS(tn_circuit_steering_of(w.ctx, &m, ids, &sd, &s), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "the MLP of block 1 is swiglu, expected bilinear MLPs after the point");
    sd.point = "norm";
    CHECK_STATUS(tn_circuit_steering_of(w.ctx, &m, ids, &sd, &s), TN_OK);
    tn_circuit_steering_destroy(&s);
    sd.point = "blocks.0.attn.pattern";
    FAILS(w.ctx, tn_circuit_steering_of(w.ctx, &m, ids, &sd, &s), TN_ERR_ARG, "no pattern and no scale");
    sd.point = "nrom";
    m.desc.layers = 1;                                              /* the block that is bilinear */
    FAILS(w.ctx, tn_circuit_steering_of(w.ctx, &m, ids, &sd, &s), TN_ERR_ARG, "did you mean norm?");
    sd.point = "blocks.0";
    sd.orders = 17;
    FAILS(w.ctx, tn_circuit_steering_of(w.ctx, &m, ids, &sd, &s), TN_ERR_ARG, "orders is 17, expected 0 to 16");
    sd.orders = 2;
    sd.edit.value = random_vector(&w, d.dim + 1);
    CHECK(tn_circuit_steering_of(w.ctx, &m, ids, &sd, &s) != TN_OK && !s.measured);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "[5]");
    tn_cp *cp = tn_circuit_mlp(w.ctx, &m, 0);
    CHECK(tn_circuit_steer(w.ctx, cp, random_vector(&w, d.dim + 1), &square) == NULL && square == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "circuit_steer: s is [5], expected [4]");
    FAILS(w.ctx, tn_circuit_align(w.ctx, &m, &m, 1, false, &r), TN_ERR_ARG, "circuit_align: block is 1, expected 0 to 0");
    tn_cp_destroy(cp);
    m.desc.layers = 2;
    close_world(&w);
}

TEST_MAIN(parts_sum_to_the_frozen_network, any_edit_is_a_vector, other_mlps_may_come_before,
          parts_of_one_block_from_its_weights, models_are_aligned_block_by_block, tokens_do_not_depend_on_the_stream,
          refusals_by_name)
