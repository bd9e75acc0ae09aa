/* test_same.c: whether two models are the same polynomial, against changes that keep a function and changes that do not. */
#include "model.h"

enum { POLYNOMIALS = 8, KINDS = 18 };

/* Models with norms, softmax and activations */
static void other_parts(int k, tn_transformer_desc *d)
{
    d->no_norm = k == 15 || k == 17;
    d->attention = k == 12 ? TN_ATTENTION_DIFFERENTIAL : k == 13 ? TN_ATTENTION_DIFFERENTIAL_PLAIN
                 : k == 14 ? TN_ATTENTION_SQUARED : k == 16 ? TN_ATTENTION_BILINEAR : TN_ATTENTION_SOFTMAX;
    d->mlp_order = k == 14 || k == 16 ? 2 : 0;
    d->mlp = k == 8 ? TN_MLP_SWIGLU : k == 9 ? TN_MLP_GELU_TANH : k == 10 ? TN_MLP_GEGLU_TANH : k == 11 ? TN_MLP_RELU
           : k == 12 ? TN_MLP_REGLU : k == 13 ? TN_MLP_RELU2 : k == 15 ? TN_MLP_SWISH : k == 17 ? TN_MLP_GLU : TN_MLP_BILINEAR;
    d->d_qk = 2;
    if (k == 8) d->qk_norm = true;
    if (k == 9) {
        d->norm = TN_NORM_LAYER;
        d->norm_bias = d->attn_bias = d->attn_out_bias = d->mlp_bias = d->mlp_out_bias = true;
    }
    if (k == 10) d->norm_place = TN_PLACE_SANDWICH, d->softcap = 5;
    if (k == 11) d->norm_place = TN_PLACE_POST, d->head_norm = true, d->window = 2, d->bidirectional = true;
    if (k == 13) d->embed_norm = true, d->value_residual = true, d->no_norm_gain = true;
    if (k == 14) d->row_scale = TN_ROW_SCALE_SUM;
    if (k == 15) d->tied = d->x0_residual = d->qk_norm = d->qk_gain = true;
    if (k == 16) d->norm = TN_NORM_LAYER, d->row_scale = TN_ROW_SCALE_MEAN;
}

/* Models of all kinds: attention, positions, orders, residuals, biases; the first POLYNOMIALS are polynomials. */
static tn_transformer_desc kind_of(int k)
{
    tn_transformer_desc d = tiny();
    d.no_norm = true;
    d.attention = k % 2 ? TN_ATTENTION_BILINEAR : TN_ATTENTION_SQUARED;
    d.positions = k % 3 == 0 ? TN_POSITIONS_ROPE : k % 3 == 1 ? TN_POSITIONS_NONE : TN_POSITIONS_LEARNED;
    d.layers = 1 + k % 2;
    d.mlp_order = k == 5 ? 3 : 2;
    if (k == 2) d.attn_bias = d.attn_out_bias = d.mlp_bias = d.mlp_out_bias = true;
    if (k == 3) d.x0_residual = d.value_residual = true;
    if (k == 4) d.row_scale = TN_ROW_SCALE_MEAN, d.tied = true;
    if (k == 6) d.window = 2, d.bidirectional = true, d.d_qk = 3, d.d_v = 1;
    if (k == 7) d.hidden = 0, d.no_projection = true, d.attn_scale = 0.3, d.mlp_scale = TN_SCALE_DEPTH;
    if (k >= POLYNOMIALS) other_parts(k, &d);
    return d;
}

/* Gives b the weights of a, as far as both have a parameter of one name and size. */
static void copy_weights(tn_params *a, tn_params *b)
{
    for (int64_t i = 0; i < tn_params_count(b); i++) {
        tn_param *to = tn_params_at(b, i), *from = tn_params_find(a, to->name);
        if (from) CHECK_STATUS(tn_assign(to->value, from->value), TN_OK);
    }
}

/* Two models of equal weights, of sets of parameters of their own. */
typedef struct pair { tn_params *ps[2]; tn_transformer m[2]; } pair;

static bool make_pair(world *w, pair *p, const tn_transformer_desc *d, uint64_t seed)
{
    for (int k = 0; k < 2; k++) {
        p->ps[k] = tn_params_create(w->ctx);
        if (!CHECK_STATUS(tn_transformer_init(p->ps[k], "", d, &p->m[k]), TN_OK)) return false;
        if (!CHECK(stir(p->ps[k], seed, 0.5))) return false;
    }
    copy_weights(p->ps[0], p->ps[1]);
    return true;
}

static void free_pair(pair *p)
{
    for (int k = 0; k < 2; k++) tn_params_destroy(p->ps[k]);
}

/* The pair of one round of many, and its end. */
static bool begin_round(world *w, pair *p, int round)
{
    const tn_transformer_desc d = kind_of(round % KINDS);
    return make_pair(w, p, &d, (uint64_t)round);
}

static void end_round(world *w, pair *p)
{
    free_pair(p);
    fresh(w);
}

static bool are_equal(const pair *p, int64_t tokens, tn_transformer_same_result *r)
{
    tn_transformer_same_desc d = ZERO;
    d.tokens = tokens;
    d.points = 1;
    d.seed = 7;
    tn_transformer_same_result own;
    if (!r) r = &own;
    if (!CHECK_STATUS(tn_transformer_same(&p->m[0], &p->m[1], &d, r), TN_OK)) return false;
    const bool equal = r->equal;
    if (r == &own) tn_transformer_same_destroy(r);
    return equal;
}

/* The largest difference of the logits of one text, as the library computes them. */
static double apart(world *w, const pair *p, int64_t tokens)
{
    int32_t    ids[8];
    double     worst = 0;
    for (int64_t t = 0; t < tokens; t++) ids[t] = (int32_t)((3 * t + 1) % p->m[0].desc.vocab);
    int64_t    shape[2] = {1, tokens};
    tn_tensor *x = tn_tensor_from(w->ctx, 2, shape, TN_I32, ids);
    double    *a = host(tn_transformer_forward(w->ctx, &p->m[0], x)), *b = host(tn_transformer_forward(w->ctx, &p->m[1], x));
    for (int64_t i = 0; i < tokens * p->m[0].desc.vocab; i++) test_raise(&worst, fabs(a[i] - b[i]));
    return worst;
}

/* Multiplies row i of all matrices of a stack t [.., rows, cols]: rows i, i + every, i + 2 every .. of rows of `cols` numbers. */
static void times_rows(tn_tensor *t, int64_t cols, int64_t i, int64_t every, double by)
{
    if (!t) return;
    const int64_t n = tn_tensor_count(t);
    double       *v = host(t);
    for (int64_t row = i; row < n / cols; row += every)
        for (int64_t c = 0; c < cols; c++) v[row * cols + c] *= by;
    CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
}

static void times_column(tn_tensor *t, int64_t cols, int64_t c, double by)
{
    const int64_t n = tn_tensor_count(t);
    double       *v = host(t);
    for (int64_t row = 0; row < n / cols; row++) v[row * cols + c] *= by;
    CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
}

static void swap_rows(tn_tensor *t, int64_t cols, int64_t i, int64_t j, int64_t count)
{
    if (!t) return;
    const int64_t n = tn_tensor_count(t);
    double       *v = host(t);
    for (int64_t k = 0; k < count * cols; k++) {
        const double x = v[i * cols + k];
        v[i * cols + k] = v[j * cols + k];
        v[j * cols + k] = x;
    }
    CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
}

static void swap_columns(tn_tensor *t, int64_t cols, int64_t i, int64_t j)
{
    const int64_t n = tn_tensor_count(t);
    double       *v = host(t);
    for (int64_t row = 0; row < n / cols; row++) {
        const double x = v[row * cols + i];
        v[row * cols + i] = v[row * cols + j];
        v[row * cols + j] = x;
    }
    CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
}

/* Swaps the two heads of a block. */
static void swap_heads(tn_transformer_block *b)
{
    const tn_attention_desc *a = &b->attn.desc;
    const int64_t            d = a->d_qk, stacks = b->attn.qk->shape[0];
    for (int64_t k = 0; k < stacks; k++) {
        swap_rows(b->attn.qk, a->dim, k * 2 * d, k * 2 * d + d, d);
        swap_rows(b->attn.qkb, 1, k * 2 * d, k * 2 * d + d, d);
    }
    swap_rows(b->attn.v, a->dim, 0, a->d_v, a->d_v);
    swap_rows(b->attn.vb, 1, 0, a->d_v, a->d_v);
    for (int64_t e = 0; e < a->d_v; e++) swap_columns(b->attn.o, 2 * a->d_v, e, a->d_v + e);
}

/* A factor from a norm's gain and bias to the matrices that read it */
static void move_gain(tn_transformer_block *b, int64_t i, double by)
{
    const int64_t n = b->attn.desc.dim;
    times_rows(b->norm1.gain, 1, i, n, by);
    times_rows(b->norm1.bias, 1, i, n, by);
    times_column(b->attn.qk, n, i, 1 / by);
    times_column(b->attn.v, n, i, 1 / by);
    times_rows(b->norm2.gain, 1, i, n, by);
    times_rows(b->norm2.bias, 1, i, n, by);
    times_column(b->mlp.w, n, i, 1 / by);
}

/* One change of weights that changes no logit: exact, for factors are powers of two. */
static void gauge(tn_transformer *m, int which, uint64_t *seed)
{
    tn_transformer_block    *b = &m->blocks[test_random_int(seed, 0, m->desc.layers - 1)];
    const tn_attention_desc *a = &b->attn.desc;
    const tn_mlp_desc       *d = &b->mlp.desc;
    const double  by = ldexp(test_random_int(seed, 0, 1) ? 1 : -1, (int)test_random_int(seed, -3, 3));
    const int64_t h = d->hidden, i = test_random_int(seed, 0, h - 1), j = test_random_int(seed, 0, h - 1);
    const int64_t sets = b->attn.qk->shape[0] / 2, rows = a->heads * a->d_qk, q = test_random_int(seed, 0, rows - 1);
    const int64_t e = test_random_int(seed, 0, a->heads * a->d_v - 1), encoders = b->mlp.w->shape[0];
    const bool    rotated = !a->no_rope, bilinear = d->kind == TN_MLP_BILINEAR;
    switch (which) {
    case 0:                                                         /* hidden units in another order */
        if (!b->mlp.p || i == j) return;
        for (int64_t k = 0; k < encoders; k++) {
            swap_rows(b->mlp.w, d->in, k * h + i, k * h + j, 1);
            swap_rows(b->mlp.b, 1, k * h + i, k * h + j, 1);
        }
        swap_columns(b->mlp.p, h, i, j);
        return;
    case 1:                                                         /* a factor from an encoder to another, or to P */
        if (encoders < 2 || (!bilinear && !b->mlp.p)) return;
        times_rows(b->mlp.w, d->in, h + i, encoders * h, 1 / by);
        times_rows(b->mlp.b, 1, h + i, encoders * h, 1 / by);
        if (!bilinear) { times_column(b->mlp.p, h, i, by); return; }
        times_rows(b->mlp.w, d->in, i, encoders * h, by);
        times_rows(b->mlp.b, 1, i, encoders * h, by);
        return;
    case 2:                                                         /* encoders swapped */
        if (!bilinear) return;
        swap_rows(b->mlp.w, d->in, 0, h, h);
        swap_rows(b->mlp.b, 1, 0, h, h);
        return;
    case 3:                                                         /* sets of scores swapped */
        if (a->kind != TN_ATTENTION_BILINEAR) return;
        for (int64_t k = 0; k < 4; k += 2) {
            swap_rows(b->attn.qk, a->dim, k * rows, (k + 1) * rows, rows);
            swap_rows(b->attn.qkb, 1, k * rows, (k + 1) * rows, rows);
        }
        return;
    case 4:                                                         /* a factor from v to o */
        if (m->desc.value_residual || a->head_norm || a->kind == TN_ATTENTION_DIFFERENTIAL) return;
        times_rows(b->attn.v, a->dim, e, a->heads * a->d_v, by);
        times_rows(b->attn.vb, 1, e, a->heads * a->d_v, by);
        times_column(b->attn.o, a->heads * a->d_v, e, 1 / by);
        return;
    case 5:                                                         /* heads in another order */
        if (!m->desc.value_residual) swap_heads(b);                 /* later blocks read the values as well */
        return;
    case 6:
        if (!m->desc.no_norm && m->desc.norm_place != TN_PLACE_POST && b->norm1.gain) move_gain(b, e % a->dim, by);
        return;
    default:                                                        /* from a query's row to its key's; pairs turn together */
        for (int64_t k = 0; k < 2 && !a->qk_norm; k++) {
            const int64_t other = q % a->d_qk < a->d_qk / 2 ? q + a->d_qk / 2 : q - a->d_qk / 2;
            const int64_t row = k == 0 ? q : other;
            if (k == 1 && (!rotated || q % a->d_qk >= a->d_qk / 2 * 2)) break;
            times_rows(b->attn.qk, a->dim, row, 2 * sets * rows, by);
            times_rows(b->attn.qkb, 1, row, 2 * sets * rows, by);
            times_rows(b->attn.qk, a->dim, sets * rows + row, 2 * sets * rows, 1 / by);
            times_rows(b->attn.qkb, 1, sets * rows + row, 2 * sets * rows, 1 / by);
        }
    }
}

TEST(gauge_transforms_are_equal)
{
    const int rounds = test_small() ? 72 : 1008;
    uint64_t  seed = 3;
    double    worst = 0;
    world     w;
    REQUIRE(open_world(&w, TN_F64, 1));
    for (int round = 0; round < rounds; round++) {
        pair p;
        if (begin_round(&w, &p, round)) {
            for (int changes = 0; changes < 6; changes++) gauge(&p.m[1], (int)test_random_int(&seed, 0, 7), &seed);
            CHECK(are_equal(&p, 1 + round % 4, NULL));
            if (round < 64) test_raise(&worst, apart(&w, &p, 1 + round % 4));
        }
        end_round(&w, &p);
    }
    WORST("logits of equal models", worst, 1e-12);
    close_world(&w);
}

/* One unit in the last place of one weight in F32 is found, with a text that shows it. */
TEST(one_unit_in_the_last_place_differs)
{
    const int rounds = test_small() ? 72 : 1008;
    uint64_t  seed = 9;
    int       shown = 0;
    world     w;
    REQUIRE(open_world(&w, TN_F32, 1));
    for (int round = 0; round < rounds; round++) {
        pair p;
        tn_transformer_same_result r;
        if (begin_round(&w, &p, round)) {
            tn_tensor *t = NULL;
            while (!t) {                                  /* what a text of three tokens reads */
                const tn_param *q = tn_params_at(p.ps[1], test_random_int(&seed, 0, tn_params_count(p.ps[1]) - 1));
                if (!strstr(q->name, "position") && !strstr(q->name, "blocks.0.attn.mix")) t = q->value;
            }
            float        *v = (float *)doubles(tn_tensor_count(t));
            const int64_t i = test_random_int(&seed, 0, tn_tensor_count(t) - 1);
            CHECK_STATUS(tn_read(t, TN_F32, v, tn_tensor_count(t)), TN_OK);
            v[i] = nextafterf(v[i], 10);
            CHECK_STATUS(tn_write(t, TN_F32, v, tn_tensor_count(t)), TN_OK);
            CHECK(!are_equal(&p, 3, &r));
            shown += r.text != NULL && round % KINDS < POLYNOMIALS;
            CHECK((r.values > 0) == (round % KINDS >= POLYNOMIALS));
            CHECK(!r.text || (r.text->shape[1] == 3 && r.position < 3 && r.token < 5));
            tn_transformer_same_destroy(&r);
        }
        end_round(&w, &p);
    }
    CHECK(shown > rounds * POLYNOMIALS / KINDS * 9 / 10);
    close_world(&w);
}

/* A setting that does nothing gives an equal model, and the library's own logits agree; one that does something does not. */
TEST(settings_mean_what_they_do)
{
    enum { CASES = 9 };
    world w;
    REQUIRE(open_world(&w, TN_F64, 1));
    for (int k = 0; k < CASES; k++) {
        for (int same = 0; same < 2; same++) {
            tn_transformer_desc d = kind_of(1), e;
            pair                p;
            d.d_qk = 4;
            if (k == 5) d.x0_residual = true;
            if (k == 6) d.value_residual = true;
            e = d;
            if (k == 0) e.window = same ? 4 : 3;
            if (k == 1) e.attn_scale = 0.5;
            if (k == 2) e.mlp_scale = 0.25;
            if (k == 3) e.score_scale = 1;
            if (k == 4) e.row_scale = same ? TN_ROW_SCALE_NONE : TN_ROW_SCALE_MEAN;
            if (k == 7) e.positions = TN_POSITIONS_ROPE, d.positions = TN_POSITIONS_ROPE, e.rope_base = same ? 10000 : 500;
            if (k == 8) e.bidirectional = !same;
            p.ps[0] = tn_params_create(w.ctx);
            p.ps[1] = tn_params_create(w.ctx);
            CHECK_STATUS(tn_transformer_init(p.ps[0], "", &d, &p.m[0]), TN_OK);
            CHECK_STATUS(tn_transformer_init(p.ps[1], "", &e, &p.m[1]), TN_OK);
            CHECK(stir(p.ps[0], 4, 0.5));
            copy_weights(p.ps[0], p.ps[1]);
            tn_transformer_block *b = p.m[1].blocks;
            if (same && (k == 1 || k == 2)) {
                tn_tensor *t = k == 1 ? b->attn.o : b->mlp.p;
                for (int64_t i = 0; i < t->shape[1]; i++) times_column(t, t->shape[1], i, k == 1 ? 2 : 4);
                if (k == 1 && p.m[1].desc.layers > 1) {
                    t = p.m[1].blocks[1].attn.o;
                    for (int64_t i = 0; i < t->shape[1]; i++) times_column(t, t->shape[1], i, 2);
                } else if (p.m[1].desc.layers > 1) {
                    t = p.m[1].blocks[1].mlp.p;
                    for (int64_t i = 0; i < t->shape[1]; i++) times_column(t, t->shape[1], i, 4);
                }
            }
            for (int64_t l = 0; same && k == 3 && l < p.m[1].desc.layers; l++) {      /* scores are divided by d_qk */
                tn_tensor *t = p.m[1].blocks[l].attn.qk;
                times_rows(t, 4, 0, 1, 0.5);
            }
            if (k >= 5 && k <= 6 && !same) {
                tn_tensor   *t = k == 5 ? b[1].lambdas : b[1].attn.mix;
                const double other[2] = {0.75, 0.25};
                CHECK_STATUS(tn_write(t, TN_F64, other, 2), TN_OK);
            }
            const bool equal = are_equal(&p, 4, NULL);
            const double off = apart(&w, &p, 4);
            if (!CHECK(equal == (same == 1)) || !CHECK(equal ? off < 1e-12 : off > 1e-6))
                printf("case %d, %s: %s, logits %.3g apart\n", k, same ? "same" : "other", equal ? "equal" : "not equal", off);
            free_pair(&p);
            fresh(&w);
        }
    }
    close_world(&w);
}

/* The prime and the residues that tools/golden_same.py finds with whole numbers of Python, of a polynomial and of a model
   with norms, softmax, SwiGLU and a soft cap. */
TEST(residue_of_an_independent_program)
{
    static const uint64_t residues[2] = {UINT64_C(671186427025425181), UINT64_C(297803671048971692)};
    for (int other = 0; other < 2; other++) {
        tn_transformer_desc        d = tiny();
        tn_transformer_same_desc   how = ZERO;
        tn_transformer_same_result r;
        pair                       p;
        world                      w;
        REQUIRE(open_world(&w, TN_F32, 1));
        d.attention = TN_ATTENTION_BILINEAR;
        d.no_norm = !other;
        if (other) {
            d.attention = TN_ATTENTION_SOFTMAX;
            d.mlp = TN_MLP_SWIGLU;
            d.qk_norm = d.qk_gain = true;
            d.softcap = 5;
        }
        REQUIRE(make_pair(&w, &p, &d, 1));
        for (int k = 0; k < 2; k++)
            for (int64_t i = 0, n = 0; i < tn_params_count(p.ps[k]); i++) {
                tn_tensor *t = tn_params_at(p.ps[k], i)->value;
                double    *v = doubles(tn_tensor_count(t));
                for (int64_t e = 0; e < tn_tensor_count(t); e++, n++) v[e] = (double)(37 * n % 19 - 9) / 8;
                CHECK_STATUS(tn_write(t, TN_F64, v, tn_tensor_count(t)), TN_OK);
            }
        how.tokens = 3;
        how.seed = 11;
        CHECK_STATUS(tn_transformer_same(&p.m[0], &p.m[1], &how, &r), TN_OK);
        CHECK(r.equal && r.prime == UINT64_C(1114462830584378879) && r.residue == residues[other]);
        CHECK(r.points == 3);
        /* Of both polynomials: (((1 * 5 + 16) * 2) * 5 + 16) * 2, where 16 is 8 (3 - 1) of one pair of a head's dimensions. With
           functions a logit is a variable; a block has 3 * 2 norms, 3 * 4 of q and k, 2 * 6 weights of softmax, 3 * 3 gates. */
        CHECK_NEAR(r.degree, other ? 2 : 2 * 452, 0);
        CHECK_NEAR(r.values, other ? 2 * (2 * (6 + 12 + 12 + 9) + 3 + 3 * 5) : 0, 0);
        /* At one of three points, with 64 bits for the sum over a weight's index. The polynomials: weights of 4 bits, and
           ((17 * 2 + 4) + 2 * (2 * 39 + 2) + 4) * 2 + 5 = 409 of them, 16, 32, 176, 352 turns. With functions: 75 bits, from the 5
           of the soft cap to the last bit of 1e-6. The largest arguments are those of the last norm, twice 23 weights and 4, of the
           second softmax, degree 2 * 7 + 8, and 8 turns. */
        const double zero = other ? ldexp(2 * 22 + 2 * 8, -59) + ldexp((2 * 50 * (75 + 64) + 4 * 8) / 59.0, -53)
                                  : ldexp(2 * 452, -59) + ldexp((2 * 409 * (4 + 64) + 4 * 352) / 59.0, -53);
        const double logits = ldexp(2, -59) + ldexp(2 * (75 + 64) / 59.0, -53);
        const double once = other ? logits + (double)r.values * (double)(r.values - 1) / 2 * zero : zero;
        CHECK_NEAR(r.chance, once * once * once, 1e-12 * r.chance);
        tn_transformer_same_destroy(&r);
        free_pair(&p);
        close_world(&w);
    }
}

/* A model that is wider, with hidden units and heads that do nothing, is the same function. */
TEST(widths_may_differ)
{
    tn_transformer_desc d = kind_of(1), e;
    pair                p;
    world               w;
    REQUIRE(open_world(&w, TN_F64, 2));
    e = d;
    e.hidden = 5;
    p.ps[0] = tn_params_create(w.ctx);
    p.ps[1] = tn_params_create(w.ctx);
    CHECK_STATUS(tn_transformer_init(p.ps[0], "", &d, &p.m[0]), TN_OK);
    CHECK_STATUS(tn_transformer_init(p.ps[1], "", &e, &p.m[1]), TN_OK);
    CHECK(stir(p.ps[0], 4, 0.5) && stir(p.ps[1], 5, 0.5));
    for (int64_t i = 0; i < tn_params_count(p.ps[1]); i++) {
        tn_param *to = tn_params_at(p.ps[1], i), *from = tn_params_find(p.ps[0], to->name);
        REQUIRE(from);
        if (tn_tensor_count(to->value) == tn_tensor_count(from->value)) tn_assign(to->value, from->value);
    }
    for (int64_t l = 0; l < d.layers; l++) {
        double *w0 = host(p.m[0].blocks[l].mlp.w), *p0 = host(p.m[0].blocks[l].mlp.p), *w1 = host(p.m[1].blocks[l].mlp.w);
        double *p1 = host(p.m[1].blocks[l].mlp.p);
        for (int64_t k = 0; k < 2; k++) memcpy(w1 + k * 5 * 4, w0 + k * 3 * 4, 3 * 4 * sizeof *w1);
        for (int64_t i = 0; i < 4; i++)
            for (int64_t h = 0; h < 5; h++) p1[i * 5 + h] = h < 3 ? p0[i * 3 + h] : 0;
        CHECK_STATUS(tn_write(p.m[1].blocks[l].mlp.w, TN_F64, w1, 2 * 5 * 4), TN_OK);
        CHECK_STATUS(tn_write(p.m[1].blocks[l].mlp.p, TN_F64, p1, 4 * 5), TN_OK);
    }
    CHECK(are_equal(&p, 4, NULL) && apart(&w, &p, 4) < 1e-12);
    times_column(p.m[1].blocks[0].mlp.p, 5, 0, 1 + 1e-15);
    CHECK(!are_equal(&p, 4, NULL));
    free_pair(&p);
    close_world(&w);
}

/* What leaves a LayerNorm or a softmax as it is: the same number added to all of a stream, or to all scores of a query. */
TEST(what_norms_and_softmax_do_not_see)
{
    tn_transformer_desc d = kind_of(9);
    pair                p;
    world               w;
    REQUIRE(open_world(&w, TN_F64, 3));
    d.positions = TN_POSITIONS_LEARNED;
    if (make_pair(&w, &p, &d, 5)) {
        tn_tensor    *at = p.m[1].position, *bias = tn_slice(p.m[1].blocks[1].attn.qkb, 0, 1, 2);
        const int64_t n = tn_tensor_count(at), m = tn_tensor_count(bias);
        double       *v = host(at), *b = host(bias), *old = host(at);
        for (int64_t i = 0; i < n; i++) v[i] = old[i] = ldexp(nearbyint(ldexp(v[i], 20)), -20);
        CHECK_STATUS(tn_write(p.m[0].position, TN_F64, old, n), TN_OK);
        for (int64_t i = 0; i < n; i++) v[i] += 0.75;
        for (int64_t i = 0; i < m; i++) b[i] += 1.25;               /* of keys, which have no rotation here */
        CHECK_STATUS(tn_write(at, TN_F64, v, n), TN_OK);
        CHECK_STATUS(tn_write(bias, TN_F64, b, m), TN_OK);
        CHECK(are_equal(&p, 4, NULL) && apart(&w, &p, 4) < 1e-12);
        v[0] += 0.5;
        CHECK_STATUS(tn_write(at, TN_F64, v, n), TN_OK);
        CHECK(!are_equal(&p, 4, NULL));
    }
    free_pair(&p);
    close_world(&w);
}

/* Where the difference is not tiny, a text shows it, with the logit that differs most. */
TEST(texts_of_models_that_are_no_polynomials)
{
    world w;
    REQUIRE(open_world(&w, TN_F64, 3));
    for (int k = POLYNOMIALS; k < KINDS; k++) {
        const tn_transformer_desc  d = kind_of(k);
        tn_transformer_same_result r;
        pair                       p;
        if (!make_pair(&w, &p, &d, 5)) break;
        times_rows(p.m[1].blocks[0].attn.v, d.dim, 0, d.heads * p.m[1].blocks[0].attn.desc.d_v, 1.5);
        if (CHECK(!are_equal(&p, 3, &r) && r.text)) {
            double *a = host(tn_transformer_forward(w.ctx, &p.m[0], r.text));
            double *b = host(tn_transformer_forward(w.ctx, &p.m[1], r.text)), most = 0;
            for (int64_t i = 0; i < 3 * d.vocab; i++) test_raise(&most, fabs(a[i] - b[i]));
            CHECK_NEAR(r.difference, most, 1e-13);
            CHECK_NEAR(fabs(a[r.position * d.vocab + r.token] - b[r.position * d.vocab + r.token]), most, 1e-13);
        }
        const int64_t before = (int64_t)tn_ctx_memory(w.ctx).live;
        tn_transformer_same_destroy(&r);
        CHECK((int64_t)tn_ctx_memory(w.ctx).live < before && !r.text);
        free_pair(&p);
        fresh(&w);
    }
    close_world(&w);
}

/* A law of a function that changes its argument is not known: relu(2 x) = 2 relu(x). Then neither answer is given. */
TEST(laws_of_functions_are_not_known)
{
    const tn_transformer_desc  d = kind_of(11);
    tn_transformer_same_result r;
    pair                       p;
    world                      w;
    REQUIRE(open_world(&w, TN_F64, 3));
    if (make_pair(&w, &p, &d, 5)) {
        times_rows(p.m[1].blocks[0].mlp.w, d.dim, 1, d.hidden, 2);
        times_rows(p.m[1].blocks[0].mlp.b, 1, 1, d.hidden, 2);
        times_column(p.m[1].blocks[0].mlp.p, d.hidden, 1, 0.5);
        CHECK(!are_equal(&p, 3, &r) && !r.text && r.values > 0 && r.difference < 1e-13);
        tn_transformer_same_destroy(&r);
    }
    free_pair(&p);
    close_world(&w);
}

TEST(what_cannot_be_evaluated_is_refused)
{
    static const char *const whys[] = {"block 0 of a scales rows of more than 2 tokens by their length",
        "a has 7 learned positions, expected at least tokens, 8",
        "b has 6 tokens, expected 5 as a"};
    world w;
    REQUIRE(open_world(&w, TN_F32, 1));
    for (int k = 0; k < 3; k++) {
        tn_transformer_desc d = kind_of(2), e = d;
        tn_transformer_same_desc   how = ZERO;
        tn_transformer_same_result r;
        tn_transformer             a, b;
        if (k == 0) d.row_length = 2;
        if (k == 1) how.tokens = 8, d.row_length = 20;
        if (k == 2) e.vocab = 6;
        CHECK_STATUS(tn_transformer_init(w.params, "a", &d, &a), TN_OK);
        CHECK_STATUS(tn_transformer_init(w.params, "b", k == 2 ? &e : &d, &b), TN_OK);
        CHECK(tn_transformer_same(&a, &b, &how, &r) != TN_OK && !r.equal && !r.text);
        CHECK_ERROR(w.ctx, k == 2 ? TN_ERR_SHAPE : TN_ERR_ARG, whys[k]);
        fresh(&w);
    }
    tn_transformer_desc        d = kind_of(0);
    tn_transformer_same_desc   how = ZERO;
    tn_transformer_same_result r;
    tn_transformer             a;
    const double               nan = (double)NAN;
    CHECK_STATUS(tn_transformer_init(w.params, "a", &d, &a), TN_OK);
    how.tokens = -1;
    FAILS(w.ctx, tn_transformer_same(&a, &a, &how, &r), TN_ERR_ARG, "transformer_same: tokens is -1, expected 1 to 1024");
    FAILS(w.ctx, tn_transformer_same(&a, NULL, NULL, &r), TN_ERR_ARG, "transformer_same: b is NULL");
    FAILS(w.ctx, tn_transformer_same(&a, &a, NULL, NULL), TN_ERR_ARG, "transformer_same: out is NULL");
    CHECK_STATUS(tn_transformer_same(NULL, &a, NULL, &r), TN_ERR_ARG);
    CHECK_STATUS(tn_write(tn_slice(tn_slice(a.head.w, 0, 1, 2), 1, 0, 1), TN_F64, &nan, 1), TN_OK);
    FAILS(w.ctx, tn_transformer_same(&a, &a, NULL, &r), TN_ERR_NONFINITE, "transformer_same: a weight is nan");
    close_world(&w);
}

/* Bidirectional attention divided by the number of its keys, and by four: only texts of four tokens agree. */
TEST(lengths_of_bidirectional_models)
{
    tn_transformer_desc d = kind_of(1), e;
    pair                p;
    world               w;
    REQUIRE(open_world(&w, TN_F64, 3));
    d.bidirectional = true;
    d.row_scale = TN_ROW_SCALE_MEAN;
    e = d;
    e.row_scale = TN_ROW_SCALE_NONE;
    e.attn_scale = 0.25;
    p.ps[0] = tn_params_create(w.ctx);
    p.ps[1] = tn_params_create(w.ctx);
    CHECK_STATUS(tn_transformer_init(p.ps[0], "", &d, &p.m[0]), TN_OK);
    CHECK_STATUS(tn_transformer_init(p.ps[1], "", &e, &p.m[1]), TN_OK);
    CHECK(stir(p.ps[0], 4, 0.5));
    copy_weights(p.ps[0], p.ps[1]);
    for (int64_t tokens = 1; tokens < 6; tokens++) {
        const bool equal = are_equal(&p, tokens, NULL);
        CHECK(equal == (tokens == 4));
        CHECK((apart(&w, &p, tokens) < 1e-12) == equal);
    }
    free_pair(&p);
    close_world(&w);
}

/* Where all weights and scales are tiny, 1 is a number as well, to which they are added: it needs no more bits as a weight. */
TEST(bits_of_tiny_weights)
{
    tn_transformer_desc        d = kind_of(7);
    tn_transformer_same_result r;
    tn_transformer             m;
    world                      w;
    const double               little = ldexp(1, -100), one = 1;
    double                     chance[2];
    REQUIRE(open_world(&w, TN_F64, 3));
    d.attn_scale = d.mlp_scale = d.score_scale = little;
    CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK);
    for (int64_t i = 0; i < tn_params_count(w.params); i++) {
        tn_tensor *t = tn_params_at(w.params, i)->value;
        double    *v = doubles(tn_tensor_count(t));
        for (int64_t k = 0; k < tn_tensor_count(t); k++) v[k] = little;
        CHECK_STATUS(tn_write(t, TN_F64, v, tn_tensor_count(t)), TN_OK);
    }
    for (int k = 0; k < 2; k++) {
        if (k == 1) CHECK_STATUS(tn_write(tn_slice(tn_slice(m.head.w, 0, 1, 2), 1, 0, 1), TN_F64, &one, 1), TN_OK);
        CHECK_STATUS(tn_transformer_same(&m, &m, NULL, &r), TN_OK);
        CHECK(r.equal && r.chance > 0);
        chance[k] = r.chance;
    }
    CHECK_NEAR(chance[0], chance[1], 0);
    close_world(&w);
}

/* The division of a row by the number of its keys needs bits, with softmax too. */
TEST(bits_of_row_means)
{
    double chance[2];
    for (int k = 0; k < 2; k++) {
        tn_transformer_desc        d = kind_of(8);
        tn_transformer_same_desc   how = ZERO;
        tn_transformer_same_result r;
        tn_transformer             m;
        world                      w;
        REQUIRE(open_world(&w, TN_F64, 3));
        d.row_scale = k ? TN_ROW_SCALE_MEAN : TN_ROW_SCALE_NONE;
        how.points = 1;
        CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK);
        CHECK_STATUS(tn_transformer_same(&m, &m, &how, &r), TN_OK);
        chance[k] = r.chance;
        close_world(&w);
    }
    CHECK(chance[1] > chance[0]);
}

/* Many blocks of polynomials: their degree is beyond the primes, and nothing is proved. With softmax it hardly grows. */
TEST(deep_models)
{
    for (int k = 0; k < 2; k++) {
        tn_transformer_desc        d = kind_of(k ? 8 : 1);
        tn_transformer             m;
        tn_transformer_same_result r;
        world                      w;
        REQUIRE(open_world(&w, TN_F32, 3));
        d.layers = k ? 48 : 20;
        CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK);
        CHECK_STATUS(tn_transformer_same(&m, &m, NULL, &r), TN_OK);
        CHECK(r.equal && (k ? r.chance < 1e-12 : r.chance == 1));
        close_world(&w);
    }
}

#ifndef TN_NO_TRAINING
/* A call between the forward and the backward pass leaves the tape as it is. */
TEST(same_beside_a_tape)
{
    tn_transformer_desc        d = kind_of(1);
    tn_transformer             m;
    tn_transformer_same_result r;
    world                      w;
    REQUIRE(open_world(&w, TN_F64, 3));
    CHECK_STATUS(tn_transformer_init(w.params, "", &d, &m), TN_OK);
    tn_tensor *x = any_matrix(&w, 2, 3);
    CHECK_STATUS(tn_watch(x), TN_OK);
    tn_record(w.ctx);
    tn_tensor *y = tn_mul(w.ctx, x, x);
    CHECK_STATUS(tn_transformer_same(&m, &m, NULL, &r), TN_OK);
    CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, y)), TN_OK);
    double *v = host(x), *g = host(x->grad);
    for (int i = 0; i < 6; i++) CHECK_NEAR(g[i], 2 * v[i], 1e-12);
    close_world(&w);
}
#endif

static void without_memory(int kind)
{
    tn_transformer_desc d = kind_of(kind);
    pair                p;
    world               w;
    REQUIRE(open_world(&w, TN_F64, 4));
    if (make_pair(&w, &p, &d, 5)) {
        times_rows(p.m[1].blocks[0].mlp.w, 4, 0, 100, 3);
        tn_transformer_same_result first;                           /* a backend keeps what its first call has allocated */
        CHECK_STATUS(tn_transformer_same(&p.m[0], &p.m[1], NULL, &first), TN_OK);
        tn_transformer_same_destroy(&first);
        for (uint64_t fail = 1; fail < 400; fail++) {
            CHECK(fail < 399);
            const tn_memory            before = tn_ctx_memory(w.ctx);
            tn_transformer_same_result r;
            w.heap.fail_at = w.heap.count + fail;
            const tn_status s = tn_transformer_same(&p.m[0], &p.m[1], NULL, &r);
            w.heap.fail_at = 0;
            if (s == TN_OK) {
                CHECK(fail > 1 && !r.equal && r.text);
                tn_transformer_same_destroy(&r);
                break;
            }
            CHECK_STATUS(s, TN_ERR_MEMORY);
            CHECK(!r.text);
            CHECK_INT(tn_ctx_memory(w.ctx).live - tn_ctx_memory(w.ctx).arena, before.live - before.arena);
            tn_ctx_clear_error(w.ctx);
        }
    }
    free_pair(&p);
    close_world(&w);
}

TEST(same_without_memory)
{
    without_memory(3);
    without_memory(8);
}

#ifdef TN_NO_TRAINING
TEST_MAIN(gauge_transforms_are_equal, one_unit_in_the_last_place_differs, settings_mean_what_they_do,
          residue_of_an_independent_program, widths_may_differ, what_norms_and_softmax_do_not_see,
          texts_of_models_that_are_no_polynomials, laws_of_functions_are_not_known, what_cannot_be_evaluated_is_refused,
          lengths_of_bidirectional_models, bits_of_tiny_weights, bits_of_row_means,
          deep_models, same_without_memory)
#else
TEST_MAIN(gauge_transforms_are_equal, one_unit_in_the_last_place_differs, settings_mean_what_they_do,
          residue_of_an_independent_program, widths_may_differ, what_norms_and_softmax_do_not_see,
          texts_of_models_that_are_no_polynomials, laws_of_functions_are_not_known, what_cannot_be_evaluated_is_refused,
          lengths_of_bidirectional_models, bits_of_tiny_weights, bits_of_row_means,
          deep_models, same_beside_a_tape, same_without_memory)
#endif
