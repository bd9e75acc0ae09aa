/* test_circuits.c: circuits of transformers against the models that they are read from, and against plain sums. */

#include "kit.h"

enum { VOCAB = 11, DIM = 6, HEADS = 2, T = 5 };

static double size_of(const tn_tensor *t) { return frobenius(host(t), tn_tensor_count(t)); }

static tn_tensor *any(world *w, int rank, int64_t a, int64_t b, int64_t c)
{
    static double v[4096];
    const int64_t shape[3] = {a, b, c};
    int64_t       n = 1;
    for (int i = 0; i < rank; i++) n *= shape[i];
    if (n > 4096) abort();
    for (int64_t i = 0; i < n; i++) v[i] = test_random_real(&w->seed);
    return tn_tensor_from(w->ctx, rank, shape, TN_F64, v);
}

/* The largest difference, over the largest entry of b. */
static double differs(const tn_tensor *a, const tn_tensor *b)
{
    double worst = 0, size = 1e-300;
    if (!CHECK(a && b && tn_tensor_count(a) == tn_tensor_count(b))) return HUGE_VAL;
    const double *x = host(a);
    const double *y = host(b);
    for (int64_t i = 0; i < tn_tensor_count(b); i++) {
        test_raise(&worst, fabs(x[i] - y[i]));
        if (fabs(y[i]) > size) size = fabs(y[i]);
    }
    return worst / size;
}

/* A model whose parameters, gains and biases among them, are all random. */
static tn_transformer_desc usual(void)
{
    tn_transformer_desc d = ZERO;
    d.vocab = VOCAB; d.layers = 2; d.dim = DIM; d.heads = HEADS; d.context = 8;
    d.attention = TN_ATTENTION_BILINEAR;
    d.d_qk = 4;
    d.hidden = 7;
    return d;
}

static bool random_model(world *w, const tn_transformer_desc *d, tn_transformer *m)
{
    tn_params_destroy(w->params);
    w->params = tn_params_create(w->ctx);
    if (!CHECK_STATUS(tn_transformer_init(w->params, "", d, m), TN_OK)) return false;
    for (int64_t i = 0; i < tn_params_count(w->params); i++) {
        tn_tensor *t = tn_params_at(w->params, i)->value;
        static double v[4096];
        for (int64_t k = 0; k < tn_tensor_count(t); k++) v[k] = 0.7 * test_random_real(&w->seed);
        if (!CHECK_STATUS(tn_write(t, TN_F64, v, tn_tensor_count(t)), TN_OK)) return false;
    }
    return true;
}

static tn_tensor *random_ids(world *w)
{
    int32_t       ids[T];
    const int64_t shape[2] = {1, T};
    for (int t = 0; t < T; t++) ids[t] = (int32_t)(test_random(&w->seed) % VOCAB);
    return tn_tensor_from(w->ctx, 2, shape, TN_I32, ids);
}

/* What block 0's attention reads [1,T,dim], by the layers. */
static tn_tensor *read_by_layers(world *w, const tn_transformer *m, tn_tensor *ids)
{
    tn_tensor *x = tn_embedding_forward(w->ctx, &m->embed, ids);
    if (m->position) x = tn_add(w->ctx, x, tn_slice(m->position, 0, 0, T));
    if (m->desc.embed_norm) x = tn_norm_forward(w->ctx, &m->embed_norm, x);
    if (m->blocks[0].lambdas) x = tn_mul(w->ctx, x, tn_sum(w->ctx, m->blocks[0].lambdas));
    return m->desc.no_norm || m->desc.norm_place == TN_PLACE_POST ? x : tn_norm_forward(w->ctx, &m->blocks[0].norm1, x);
}

static double entry(const tn_circuit *c, int64_t i, int64_t j, world *w)
{
    return tn_item(tn_slice(tn_circuit_rows(w->ctx, c, i, 1), 1, j, j + 1));
}

/* ---- factors ------------------------------------------------------------- */

TEST(factors_give_rows)
{
    world      w;
    tn_tensor *left[2], *right[2];
    double     l[2][15], r[2][12], got[8], worst = 0;
    REQUIRE(open_on(&w, TN_F64, 3, 1, NULL));
    for (int s = 0; s < 2; s++) {
        left[s] = any(&w, 2, 5, 3, 0);
        right[s] = any(&w, 2, 4, 3, 0);
        tn_read(left[s], TN_F64, l[s], 15);
        tn_read(right[s], TN_F64, r[s], 12);
    }
    for (int sets = 1; sets <= 2; sets++) {
        tn_circuit *c = tn_circuit_create(w.ctx, sets, left, right);
        CHECK_STATUS(tn_read(tn_circuit_rows(w.ctx, c, 2, 2), TN_F64, got, 8), TN_OK);
        for (int i = 0; i < 8; i++) {
            double expected = 1;
            for (int s = 0; s < sets; s++) {
                double dot = 0;
                for (int k = 0; k < 3; k++) dot += l[s][(2 + i / 4) * 3 + k] * r[s][(i % 4) * 3 + k];
                expected *= dot;
            }
            test_raise(&worst, fabs(got[i] - expected));
        }
        REFUSED(w.ctx, tn_circuit_rows(w.ctx, c, 4, 2), TN_ERR_SHAPE, "first is 4 and count 2, expected rows from 0 to 4");
        tn_circuit_destroy(c);
    }
    CHECK_CTX(w.ctx);
    WORST("rows of a circuit", worst, 1e-14);
    REFUSED(w.ctx, tn_circuit_create(w.ctx, 3, left, right), TN_ERR_ARG, "sets is 3, expected 1 or 2");
    right[1] = any(&w, 2, 4, 2, 0);
    REFUSED(w.ctx, tn_circuit_create(w.ctx, 2, left, right), TN_ERR_SHAPE, "left 1 is [5,3] and right 1 is [4,2]");
    close_world(&w);
}

/* ---- the first block, with its norms ------------------------------------- */

/* Patterns and outputs of block 0 from tables of tokens alone, against the model's. */
static void compare_first_block(world *w, const tn_transformer_desc *d, double worst[2])
{
    tn_transformer  m;
    tn_circuit_desc at = ZERO;
    int32_t         id[T];
    double          p[HEADS][T][T], sum[T][VOCAB];
    if (!random_model(w, d, &m)) return;
    tn_tensor *ids = random_ids(w);
    tn_read(ids, TN_I32, id, T);
    tn_tensor *pattern = tn_transformer_pattern(w->ctx, &m, ids, 0);
    at.tokens = true;
    for (at.head = 0; at.head < HEADS; at.head++)
        for (at.query = 0; at.query < T; at.query++) {
            double total = 0;
            for (at.key = 0; at.key < T; at.key++) {
                tn_circuit *c = at.key <= at.query ? tn_circuit_qk(w->ctx, &m, &at) : NULL;
                double      v = c ? entry(c, id[at.query], id[at.key], w) : 0;
                if (c && d->attention == TN_ATTENTION_SOFTMAX) v = exp(v);
                total += v;
                p[at.head][at.query][at.key] = v;
                tn_circuit_destroy(c);
            }
            for (int s = 0; s < T && d->attention == TN_ATTENTION_SOFTMAX; s++) p[at.head][at.query][s] /= total;
        }
    if (CHECK(pattern != NULL)) {
        const double *run = host(pattern);
        for (int i = 0; i < HEADS * T * T; i++) test_raise(&worst[0], fabs(run[i] - (&p[0][0][0])[i]));
    }
    if (d->head_norm || d->norm_place != TN_PLACE_PRE) return;
    memset(sum, 0, sizeof sum);
    for (at.head = 0; at.head < HEADS; at.head++)
        for (int s = 0; s < T; s++) {
            tn_circuit *c;
            at.key = s;
            if (!CHECK((c = tn_circuit_ov(w->ctx, &m, &at)) != NULL)) return;
            const double *v = host(tn_transpose(tn_circuit_rows(w->ctx, c, 0, VOCAB), 0, 1)) + id[s] * VOCAB;
            for (int t = s; t < T; t++) for (int u = 0; u < VOCAB; u++) sum[t][u] += p[at.head][t][s] * v[u];
            tn_circuit_destroy(c);
        }
    tn_tensor *x = read_by_layers(w, &m, ids);
    tn_tensor *attn = tn_attention_forward(w->ctx, &m.blocks[0].attn, x, NULL);
    if (m.blocks[0].attn.ob) attn = tn_sub(w->ctx, attn, m.blocks[0].attn.ob);
    attn = tn_scale(w->ctx, tn_reshape_2d(attn, T, DIM), m.desc.attn_scale);
    tn_tensor *logits = tn_matmul(w->ctx, attn, tn_transpose(tn_circuit_unembedding(w->ctx, &m), 0, 1));
    if (CHECK(logits != NULL)) {
        const double *run = host(logits);
        for (int i = 0; i < T * VOCAB; i++) test_raise(&worst[1], fabs(run[i] - (&sum[0][0])[i]));
    }
}

TEST(first_block_is_exact_with_norms)
{
    static const tn_dtype both[2] = {TN_F64, TN_F32};
    for (int i = 0; i < 2; i++) {
        world               w;
        tn_transformer_desc d = usual();
        double              worst[2] = {0, 0};
        REQUIRE(open_on(&w, both[i], 7, 1, NULL));
        compare_first_block(&w, &d, worst);                                         /* RMS norms with gains, RoPE */
        d.qk_norm = d.embed_norm = d.attn_bias = d.attn_out_bias = true;
        d.attn_scale = 0.5;
        compare_first_block(&w, &d, worst);
        d.x0_residual = d.value_residual = true;
        d.attention = TN_ATTENTION_SQUARED;
        compare_first_block(&w, &d, worst);
        d = usual();
        d.norm = TN_NORM_LAYER;
        d.norm_bias = d.attn_bias = true;
        d.positions = TN_POSITIONS_LEARNED;
        d.attention = TN_ATTENTION_SOFTMAX;
        compare_first_block(&w, &d, worst);
        d.norm_place = TN_PLACE_POST;
        d.positions = TN_POSITIONS_NONE;
        compare_first_block(&w, &d, worst);
        WORST(i ? "patterns of block 0 from tables, F32" : "patterns of block 0 from tables", worst[0], i ? 1e-4 : 1e-12);
        WORST(i ? "outputs of block 0 from tables, F32" : "outputs of block 0 from tables", worst[1], i ? 1e-4 : 1e-12);
        close_world(&w);
    }
}

/* ---- directions of the stream -------------------------------------------- */

/* x without gain and bias, with the one where the circuit has it */
static tn_tensor *normed(world *w, const tn_norm *norm, tn_tensor *x, bool one)
{
    tn_norm bare = *norm;
    bare.gain = bare.bias = NULL;
    x = tn_norm_forward(w->ctx, &bare, x);
    return one ? tn_append_one(w->ctx, x) : x;
}

TEST(directions_of_a_later_block)
{
    world w;
    REQUIRE(open_on(&w, TN_F64, 11, 1, NULL));
    double worst = 0, written = 0, nets = 0;
    for (int kind = 0; kind < 2; kind++) {
        tn_transformer_desc d = usual();
        tn_transformer      m;
        d.attn_bias = kind == 1;
        d.norm = kind ? TN_NORM_LAYER : TN_NORM_RMS;
        d.norm_bias = kind == 1;
        d.attn_scale = 0.75;
        REQUIRE(random_model(&w, &d, &m));
        const tn_attention *a = &m.blocks[1].attn;
        bool one = kind == 1;
        tn_tensor *x = any(&w, 3, 1, T, DIM);
        tn_tensor *n = tn_norm_forward(w.ctx, &m.blocks[1].norm1, x);
        tn_tensor *pattern = tn_attention_pattern(w.ctx, a, n);
        tn_tensor *values = tn_affine(w.ctx, n, a->v, a->vb);
        x = tn_reshape_2d(normed(&w, &m.blocks[1].norm1, x, one), T, DIM + one);
        for (int64_t h = 0; h < HEADS; h++) {
            tn_circuit_desc at = ZERO;
            tn_circuit     *c;
            at.block = 1; at.head = h; at.query = 4; at.key = 1;
            REQUIRE((c = tn_circuit_qk(w.ctx, &m, &at)) != NULL);
            CHECK_INT(c->sets, 2);
            CHECK_INT(c->rows, DIM + one);
            double product = 1;
            for (int s = 0; s < 2; s++) {
                tn_tensor *l = tn_matmul(w.ctx, tn_slice(x, 0, 4, 5), c->left[s]);
                tn_tensor *r = tn_matmul(w.ctx, tn_slice(x, 0, 1, 2), c->right[s]);
                product *= tn_item(tn_matmul(w.ctx, l, tn_transpose(r, 0, 1)));
            }
            test_raise(&worst, fabs(product - host(pattern)[(h * T + 4) * T + 1]));
            tn_circuit_destroy(c);
            REQUIRE((c = tn_circuit_ov(w.ctx, &m, &at)) != NULL);
            tn_tensor *y = tn_slice(tn_reshape_2d(values, T, HEADS * DIM / HEADS), 1, h * DIM / HEADS, (h + 1) * DIM / HEADS);
            y = tn_scale(w.ctx, tn_matmul(w.ctx, y, tn_transpose(tn_attention_head(a, h, TN_HEAD_O), 0, 1)), 0.75);
            test_raise(&written, differs(tn_matmul(w.ctx, x, tn_transpose(tn_circuit_rows(w.ctx, c, 0, DIM), 0, 1)), y));
            tn_circuit_destroy(c);
        }
        {   /* the layer as a net, summed over distances */
            tn_tensor *sum = NULL, *last = tn_slice(x, 0, T - 1, T), *in[5];
            for (int64_t s = 0; s < T; s++) {
                tn_net *net = tn_circuit_attention(w.ctx, &m, 1, T - 1 - s);
                in[0] = in[1] = tn_copy(w.ctx, last);
                in[2] = in[3] = in[4] = tn_copy(w.ctx, tn_slice(x, 0, s, s + 1));
                tn_tensor *y = tn_net_apply_each(w.ctx, net, in);
                sum = sum ? tn_add(w.ctx, sum, y) : y;
                tn_net_destroy(net);
            }
            tn_tensor *run = tn_attention_forward(w.ctx, a, n, NULL);
            run = tn_scale(w.ctx, tn_slice(tn_reshape_2d(run, T, DIM), 0, T - 1, T), 0.75);
            test_raise(&nets, differs(sum, run));
        }
        {   /* the MLP as an operator */
            tn_tensor *y = any(&w, 2, T, DIM, 0);
            tn_cp     *cp = tn_circuit_mlp(w.ctx, &m, 1);
            tn_tensor *run = tn_mlp_forward(w.ctx, &m.blocks[1].mlp, tn_norm_forward(w.ctx, &m.blocks[1].norm2, y));
            test_raise(&nets, differs(tn_cp_apply(w.ctx, cp, normed(&w, &m.blocks[1].norm2, y, false)), run));
            tn_cp_destroy(cp);
        }
    }
    WORST("scores from directions", worst, 1e-12);
    WORST("outputs from directions", written, 1e-12);
    WORST("layers as nets and operators", nets, 1e-12);
    close_world(&w);
}

TEST(tokens_of_a_later_block)
{
    world               w;
    tn_transformer_desc d = usual();
    tn_transformer      m;
    tn_circuit_desc     at;
    tn_circuit         *c, *r;
    double              worst = 0;
    REQUIRE(open_on(&w, TN_F64, 5, 1, NULL));
    for (int norms = 0; norms < 2; norms++) {
        d.no_norm = !norms;
        REQUIRE(random_model(&w, &d, &m));
        memset(&at, 0, sizeof at);
        at.block = 1; at.head = 1; at.query = 2;
        REQUIRE((r = tn_circuit_qk(w.ctx, &m, &at)) != NULL);
        at.tokens = true;
        if (norms) at.norm_scale = 0.5;
        REQUIRE((c = tn_circuit_qk(w.ctx, &m, &at)) != NULL);
        tn_tensor *x = norms ? tn_scale(w.ctx, m.embed.w, 0.5) : m.embed.w;
        for (int s = 0; s < 2; s++) {
            test_raise(&worst, differs(c->left[s], tn_matmul(w.ctx, x, r->left[s])));
            test_raise(&worst, differs(c->right[s], tn_matmul(w.ctx, x, r->right[s])));
        }
        tn_circuit_destroy(c);
        tn_circuit_destroy(r);
    }
    WORST("tokens of a later block", worst, 1e-13);
    close_world(&w);
}

/* ---- composition --------------------------------------------------------- */

static tn_tensor *whole(world *w, const tn_circuit *c) { return tn_circuit_rows(w->ctx, c, 0, c ? c->rows : 0); }

TEST(virtual_heads_and_scores)
{
    world               w;
    tn_transformer_desc d = usual();
    tn_transformer      m;
    tn_circuit_desc     at = ZERO;
    double              worst = 0, norm;
    REQUIRE(open_on(&w, TN_F64, 13, 1, NULL));
    d.qk_norm = true;
    REQUIRE(random_model(&w, &d, &m));
    at.head = 1;
    tn_circuit *one = tn_circuit_ov(w.ctx, &m, &at);
    at.block = 1; at.head = 0;
    tn_circuit *two = tn_circuit_ov(w.ctx, &m, &at);
    tn_circuit *qk = tn_circuit_qk(w.ctx, &m, &at);
    REQUIRE(one && two && qk);
    tn_circuit *c = tn_circuit_compose(two, TN_CIRCUIT_COLUMNS, one);
    test_raise(&worst, differs(whole(&w, c), tn_matmul(w.ctx, whole(&w, two), whole(&w, one))));
    CHECK_STATUS(tn_circuit_norm(c, &norm), TN_OK);
    double size = size_of(whole(&w, c));
    test_raise(&worst, fabs(norm - size) / size);
    size /= size_of(whole(&w, one)) * size_of(whole(&w, two));
    tn_tensor *scores = tn_circuit_composition(w.ctx, &m, 0, 1, TN_HEAD_V);
    test_raise(&worst, fabs(host(scores)[1] - size));     /* head 0 of 1, 1 of 0 */
    tn_tensor_destroy(scores);
    tn_circuit_destroy(c);
    at.set = 2;
    c = tn_circuit_qk(w.ctx, &m, &at);
    for (int side = 0; side < 2; side++) {
        tn_circuit *both = tn_circuit_compose(c, side ? TN_CIRCUIT_COLUMNS : TN_CIRCUIT_ROWS, one);
        tn_tensor  *a = whole(&w, c), *b = whole(&w, one);
        tn_tensor  *expected = side ? tn_matmul(w.ctx, a, b) : tn_matmul(w.ctx, tn_transpose(b, 0, 1), a);
        test_raise(&worst, differs(whole(&w, both), expected));
        scores = tn_circuit_composition(w.ctx, &m, 0, 1, side ? TN_HEAD_K2 : TN_HEAD_Q2);
        test_raise(&worst, fabs(host(scores)[1] - size_of(expected) / size_of(a) / size_of(b)));
        tn_tensor_destroy(scores);
        tn_circuit_destroy(both);
    }
    tn_circuit_destroy(c);
    c = tn_circuit_compose(qk, TN_CIRCUIT_COLUMNS, one);                            /* both sets at once */
    CHECK_STATUS(tn_circuit_norm(c, &norm), TN_OK);
    test_raise(&worst, fabs(norm - size_of(whole(&w, c))) / norm);
    CHECK_INT(c->columns, DIM);
    tn_circuit_destroy(c);
    {   /* the last column of outer belongs to the one, which inner does not write */
        tn_tensor  *l[2], *r[2];
        tn_circuit *parts[2];
        for (int i = 0; i < 2; i++) {
            l[i] = any(&w, 2, i ? 6 : 5, 3, 0);
            r[i] = any(&w, 2, i ? 4 : 7, 3, 0);
            parts[i] = tn_circuit_create(w.ctx, 1, &l[i], &r[i]);
        }
        c = tn_circuit_compose(parts[0], TN_CIRCUIT_COLUMNS, parts[1]);
        test_raise(&worst, differs(whole(&w, c), tn_matmul(w.ctx, tn_slice(whole(&w, parts[0]), 1, 0, 6), whole(&w, parts[1]))));
        tn_circuit_destroy(c);
        for (int i = 0; i < 2; i++) tn_circuit_destroy(parts[i]);
    }
    WORST("compositions", worst, 1e-12);
    REFUSED(w.ctx, tn_circuit_compose(one, TN_CIRCUIT_COLUMNS, qk), TN_ERR_ARG, "inner has 2 sets, expected 1");
    {
        tn_tensor  *f = any(&w, 2, 3, 2, 0);
        tn_circuit *small = tn_circuit_create(w.ctx, 1, &f, &f);
        REFUSED(w.ctx, tn_circuit_compose(one, TN_CIRCUIT_COLUMNS, small), TN_ERR_SHAPE, "inner has 3 rows, expected 6, the columns of outer");
        REFUSED(w.ctx, tn_circuit_compose(one, TN_CIRCUIT_ROWS, small), TN_ERR_SHAPE, "inner has 3 rows, expected 6, the rows of outer");
        tn_circuit_destroy(small);
    }
    REFUSED(w.ctx, tn_circuit_composition(w.ctx, &m, 1, 1, TN_HEAD_V), TN_ERR_ARG, "from is 1 and to is 1, expected from < to");
    REFUSED(w.ctx, tn_circuit_composition(w.ctx, &m, 0, 1, TN_HEAD_O), TN_ERR_ARG, "part is 5");
    tn_circuit_destroy(one);
    tn_circuit_destroy(two);
    tn_circuit_destroy(qk);
    close_world(&w);
}

TEST(copying_scores)
{
    world         w;
    const double  left[8] = {1, 0, 0, 2, 0, 0, 0, 0}, turn[8] = {0, -3, 3, 0, 0, 0, 5, 5};
    const int64_t shape[2] = {4, 2};
    tn_tensor    *values;
    double        score;
    REQUIRE(open_on(&w, TN_F64, 1, 1, NULL));
    tn_tensor  *l = tn_tensor_from(w.ctx, 2, shape, TN_F64, left);
    tn_circuit *c = tn_circuit_create(w.ctx, 1, &l, &l);                            /* diag(1,4,0,0) */
    CHECK_STATUS(tn_circuit_copying(c, &values, &score), TN_OK);
    CHECK_NEAR(host(values)[0], 4, 1e-14);
    CHECK_NEAR(host(values)[2], 1, 1e-14);
    CHECK_NEAR(score, 1, 1e-14);
    tn_tensor_destroy(values);
    tn_circuit_destroy(c);
    tn_tensor *r = tn_scale(w.ctx, l, -1);
    c = tn_circuit_create(w.ctx, 1, &l, &r);
    CHECK_STATUS(tn_circuit_copying(c, NULL, &score), TN_OK);
    CHECK_NEAR(score, -1, 1e-14);
    tn_circuit_destroy(c);
    r = tn_tensor_from(w.ctx, 2, shape, TN_F64, turn);
    c = tn_circuit_create(w.ctx, 1, &l, &r);                            /* turns: +- i sqrt(18) */
    CHECK_STATUS(tn_circuit_copying(c, &values, &score), TN_OK);
    CHECK_NEAR(score, 0, 1e-14);
    CHECK_NEAR(host(values)[1], sqrt(18), 1e-13);
    tn_tensor_destroy(values);
    tn_circuit_destroy(c);
    l = any(&w, 2, 5, 3, 0);
    r = any(&w, 2, 4, 3, 0);
    c = tn_circuit_create(w.ctx, 1, &l, &r);
    FAILS(w.ctx, tn_circuit_copying(c, NULL, &score), TN_ERR_SHAPE, "the circuit is [5,4], expected a square one");
    tn_circuit_destroy(c);
    close_world(&w);
}

/* ---- OV++ ----------------------------------------------------------------- */

static tn_tensor *held(world *w, const tn_transformer *m, const tn_norm *norm, tn_tensor *x, double factor)
{
    if (m->desc.no_norm) return x;
    if (norm->desc.kind == TN_NORM_LAYER) {
        const int64_t shape[3] = {1, tn_tensor_count(x) / DIM, 1};
        tn_tensor    *mean = tn_scale(w->ctx, tn_sum_axis(w->ctx, x, 2), 1 / (double)DIM);
        x = tn_sub(w->ctx, x, tn_reshape(mean, 3, shape));
    }
    x = tn_scale(w->ctx, x, factor);
    if (norm->gain) x = tn_mul(w->ctx, x, norm->gain);
    return norm->bias ? tn_add(w->ctx, x, norm->bias) : x;
}

/* Block 0 with denominators held constant: by its layers, and by the three forms of OV++. */
static void compare_block(world *w, const tn_transformer_desc *d, double worst[3])
{
    tn_transformer       m;
    tn_circuit_block_desc od = ZERO;
    tn_circuit_block      o;
    tn_tensor *x = any(w, 3, 1, T, DIM), *sum[3] = {NULL, NULL, NULL}, *in[3];
    tn_tensor *own[HEADS + 1], *mixed[HEADS + 1], *values[HEADS];
    const int64_t square[2] = {T, T}, dim = DIM;
    od.norm1_scale = 0.8; od.norm2_scale = 1.25;
    od.compact = true;
    if (!random_model(w, d, &m) || !CHECK_STATUS(tn_circuit_block_of(w->ctx, &m, &od, &o), TN_OK)) return;
    tn_tensor *n = held(w, &m, &m.blocks[0].norm1, x, 0.8);
    tn_tensor *pattern = tn_attention_pattern(w->ctx, &m.blocks[0].attn, n);
    tn_tensor *y = tn_add(w->ctx, x, tn_scale(w->ctx, tn_attention_forward(w->ctx, &m.blocks[0].attn, n, NULL),
                                              m.desc.attn_scale));
    n = tn_mlp_forward(w->ctx, &m.blocks[0].mlp, held(w, &m, &m.blocks[0].norm2, y, 1.25));
    tn_tensor *direct = tn_reshape_2d(tn_add(w->ctx, y, tn_scale(w->ctx, n, m.desc.mlp_scale)), T, DIM);
    tn_tensor *one = tn_append_one(w->ctx, tn_reshape_2d(x, T, DIM));
    for (int64_t g = 0; g <= HEADS; g++) {                              /* A^g M^g x~, and the values that it mixes */
        const int64_t shape[2] = {DIM + 1, DIM + 1}, part[2] = {DIM / HEADS, DIM + 1};
        tn_tensor *map = tn_reshape(tn_slice(o.m, 0, g, g + 1), 2, shape), *a = NULL;
        if (g > 0) a = tn_reshape(tn_slice(pattern, 1, g - 1, g), 2, square);
        mixed[g] = own[g] = tn_matmul(w->ctx, one, tn_transpose(map, 0, 1));
        if (a) mixed[g] = tn_matmul(w->ctx, a, mixed[g]);
        if (a) {
            map = tn_reshape(tn_slice(o.v, 0, g - 1, g), 2, part);
            values[g - 1] = tn_matmul(w->ctx, a, tn_matmul(w->ctx, one, tn_transpose(map, 0, 1)));
        }
    }
    for (int64_t g = 0; g <= HEADS; g++)
        for (int64_t k = 0; k <= HEADS; k++) {
            tn_cp     *term = tn_circuit_block_term(&o, g, k);
            tn_tensor *last = tn_slice(mixed[k], 1, DIM, DIM + 1);
            tn_tensor *at[2] = {one, one};
            tn_tensor *left[2] = {mixed[g], tn_slice(mixed[g], 1, 0, DIM)};
            tn_tensor *right[2] = {mixed[k], tn_mul(w->ctx, last, tn_full(w->ctx, 1, &dim, 1))};
            in[0] = tn_concat(w->ctx, 2, left, 1);
            in[1] = tn_concat(w->ctx, 2, right, 1);
            y = tn_cp_apply_each(w->ctx, o.doubled, in);
            sum[0] = sum[0] ? tn_add(w->ctx, sum[0], y) : y;
            in[0] = own[g]; in[1] = own[k];                             /* a term is B+ of two positions: here both are t */
            test_raise(&worst[1], differs(tn_cp_apply_each(w->ctx, term, at), tn_cp_apply_each(w->ctx, o.b, in)));
            in[0] = mixed[g]; in[1] = mixed[k];
            y = tn_cp_apply_each(w->ctx, o.b, in);                      /* B+ itself */
            sum[1] = sum[1] ? tn_add(w->ctx, sum[1], y) : y;
            if (g == 0 || k == 0) sum[2] = sum[2] ? tn_add(w->ctx, sum[2], y) : y;
            tn_cp_destroy(term);
        }
    in[0] = o.compact;
    in[1] = tn_stack(w->ctx, HEADS, values, 1);
    in[2] = in[1];
    sum[2] = tn_add(w->ctx, sum[2], tn_einsum(w->ctx, "gkoab,tga,tkb->to", 3, in));
    for (int i = 0; i < 3; i++) test_raise(&worst[i], differs(sum[i], direct));
    tn_circuit_block_destroy(&o);
}

TEST(block_doubled_compact_and_direct)
{
    world               w;
    tn_transformer_desc d = usual();
    double              worst[3] = {0, 0, 0};
    REQUIRE(open_on(&w, TN_F64, 17, 1, NULL));
    d.attn_bias = d.attn_out_bias = d.mlp_bias = d.mlp_out_bias = d.no_norm = true;
    d.attn_scale = 0.5; d.mlp_scale = 1.5;
    compare_block(&w, &d, worst);
    d.no_norm = false;
    compare_block(&w, &d, worst);
    d.norm = TN_NORM_LAYER;
    d.norm_bias = true;
    compare_block(&w, &d, worst);
    d = usual();
    d.attention = TN_ATTENTION_SOFTMAX;
    d.no_norm_gain = true;
    compare_block(&w, &d, worst);
    WORST("OV++ doubled", worst[0], 1e-12);
    WORST("OV++ by terms", worst[1], 1e-12);
    WORST("OV++ compact", worst[2], 1e-12);
    close_world(&w);
}

/* ---- tables --------------------------------------------------------------- */

TEST(bigrams_are_the_model_without_attention)
{
    world  w;
    double worst = 0;
    REQUIRE(open_on(&w, TN_F64, 19, 1, NULL));
    for (int i = 0; i < 4; i++) {
        tn_transformer_desc d = usual();
        tn_transformer      m;
        tn_circuit         *c;
        int32_t             all[VOCAB];
        const int64_t       shape[2] = {VOCAB, 1};
        d.norm_place = i == 1 ? TN_PLACE_POST : i == 2 ? TN_PLACE_SANDWICH : TN_PLACE_PRE;
        d.norm = i > 0 ? TN_NORM_LAYER : TN_NORM_RMS;
        d.norm_bias = i > 0;
        d.x0_residual = i == 0;
        d.mlp = i == 3 ? TN_MLP_GELU : TN_MLP_BILINEAR;
        d.attn_out_bias = true;
        REQUIRE(random_model(&w, &d, &m));
        for (int l = 0; l < 2; l++)
            CHECK_STATUS(tn_assign(m.blocks[l].attn.o, tn_scale(w.ctx, tn_copy(w.ctx, m.blocks[l].attn.o), 0)), TN_OK);
        for (int k = 0; k < VOCAB; k++) all[k] = k;
        tn_tensor *run = tn_transformer_forward(w.ctx, &m, tn_tensor_from(w.ctx, 2, shape, TN_I32, all));
        REQUIRE((c = tn_circuit_bigrams(w.ctx, &m, 2, 0)) != NULL);
        test_raise(&worst, differs(whole(&w, c), run));
        tn_circuit_destroy(c);
    }
    WORST("bigrams", worst, 1e-12);
    close_world(&w);
}

/* Blocks reuse one block's memory: the hidden units of a large vocabulary are most of what the table needs. */
TEST(bigrams_of_many_blocks)
{
    tn_transformer_desc d = usual();
    tn_transformer      m;
    tn_desc             desc = ZERO;
    tn_ctx             *ctx;
    size_t              peak[2];
    desc.arena_bytes = 1 << 12;                                 /* grows as it has to */
    REQUIRE(CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
    d.layers = 8;
    d.vocab = 400;
    d.hidden = 60;
    CHECK_STATUS(tn_transformer_init(tn_params_create(ctx), "", &d, &m), TN_OK);
    for (int i = 0; i < 2; i++) {
        tn_circuit *c = tn_circuit_bigrams(ctx, &m, i ? 8 : 1, 0);
        REQUIRE(c != NULL);
        peak[i] = tn_ctx_memory(ctx).peak;
        tn_circuit_destroy(c);
    }
    CHECK(peak[0] > 400 * 60 * sizeof(float));
    WORST("memory of eight blocks beside that of one", (double)peak[1] / (double)peak[0], 1.1);
    tn_ctx_destroy(ctx);
}

TEST(pairs_of_tokens)
{
    world               w;
    tn_transformer_desc d = usual();
    tn_transformer      m;
    tn_circuit         *c;
    tn_circuit_top_desc top = ZERO;
    tn_circuit_entries  e;
    tn_tensor          *values, *ids, *columns, *rows;
    const int32_t       chosen[3] = {7, 0, 7}, outside[3] = {7, VOCAB, 0};
    const int64_t       three = 3;
    double              worst = 0, best = 0, sum = 0;
    REQUIRE(open_on(&w, TN_F64, 23, 1, NULL));
    d.mlp_bias = true;
    REQUIRE(random_model(&w, &d, &m));
    REQUIRE((c = tn_circuit_pairs(w.ctx, &m, 0, 4)) != NULL);
    tn_tensor *x = tn_norm_forward(w.ctx, &m.blocks[0].norm2, m.embed.w);
    tn_tensor *y = tn_mlp_forward(w.ctx, &m.blocks[0].mlp, x);
    y = tn_matmul(w.ctx, y, tn_transpose(tn_circuit_unembedding(w.ctx, &m), 0, 1));
    for (int i = 0; i < VOCAB; i++) test_raise(&worst, fabs(entry(c, i, i, &w) - host(y)[i * VOCAB + 4]));
    y = whole(&w, c);
    test_raise(&worst, differs(y, tn_transpose(y, 0, 1)));
    top.top = 5;
    top.order = TN_ORDER_MAGNITUDE;
    top.pairs = true;
    CHECK_STATUS(tn_circuit_top(c, &top, &e), TN_OK);
    const double *t = host(y);
    for (int i = 0; i < VOCAB; i++)
        for (int j = i; j < VOCAB; j++) {
            const double v = t[i * VOCAB + j] * (i < j ? 2 : 1);
            if (fabs(v) > best) best = fabs(v);
            sum += v * v;
        }
    CHECK_INT(e.count, 5);
    test_raise(&worst, fabs(fabs(host(e.values)[0]) - best));
    test_raise(&worst, fabs(e.norm - sqrt(sum)) / e.norm);
    test_raise(&worst, fabs(host(e.share)[0] - best * best / sum));
    {
        const double *at = host(e.index), *v = host(e.values);
        for (int k = 0; k < 5; k++) {
            const int i = (int)at[2 * k], j = (int)at[2 * k + 1];
            CHECK(i <= j && (k == 0 || fabs(v[k]) <= fabs(v[k - 1])));
            test_raise(&worst, fabs(v[k] - t[i * VOCAB + j] * (i < j ? 2 : 1)));
        }
    }
    tn_circuit_entries_destroy(&e);
    {                                                           /* all orders in one pass are those of three passes */
        tn_circuit_top_desc each[4];
        tn_circuit_entries  one[4];
        for (int k = 0; k < 4; k++) {
            memset(&each[k], 0, sizeof each[k]);
            each[k].top = 4 + k;
            each[k].order = (tn_order)(k % 3);
            each[k].pairs = k < 2;
        }
        CHECK_STATUS(tn_circuit_top_many(c, 4, each, one), TN_OK);
        for (int k = 0; k < 4; k++) {
            CHECK_STATUS(tn_circuit_top(c, &each[k], &e), TN_OK);
            CHECK_INT(one[k].count, 4 + k);
            test_raise(&worst, differs(one[k].values, e.values));
            test_raise(&worst, differs(one[k].index, e.index));
            test_raise(&worst, differs(one[k].share, e.share));
            test_raise(&worst, fabs(one[k].norm - e.norm));
            tn_circuit_entries_destroy(&e);
            tn_circuit_entries_destroy(&one[k]);
        }
        CHECK_STATUS(tn_circuit_top_many(c, 0, each, one), TN_ERR_ARG);
        CHECK(strstr(tn_ctx_error(w.ctx), "count is 0, expected 1 to 4"));
        tn_ctx_clear_error(w.ctx);
        each[3].top = 0;
        CHECK_STATUS(tn_circuit_top_many(c, 4, each, one), TN_ERR_ARG);
        CHECK(one[0].values == NULL && one[3].values == NULL);
        tn_ctx_clear_error(w.ctx);
    }
    CHECK_STATUS(tn_circuit_top_rows(c, 3, TN_ORDER_LARGEST, &values, &ids), TN_OK);
    x = tn_topk(w.ctx, y, 1, 3, TN_ORDER_LARGEST, &rows);
    test_raise(&worst, differs(values, x));
    test_raise(&worst, differs(ids, rows));
    tn_tensor_destroy(values);
    tn_tensor_destroy(ids);
    CHECK(tn_circuit_select(c, tn_tensor_from(w.ctx, 1, &three, TN_I32, outside), NULL) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_DATA, "is 11, which is outside the table");
    tn_circuit *some = tn_circuit_select(c, tn_tensor_from(w.ctx, 1, &three, TN_I32, chosen), NULL);
    test_raise(&worst, differs(tn_slice(whole(&w, some), 0, 2, 3), tn_slice(y, 0, 7, 8)));
    tn_circuit_destroy(some);
    tn_circuit_destroy(c);
    {
        tn_circuit_desc at = ZERO;
        at.tokens = true;
        REQUIRE((c = tn_circuit_qk(w.ctx, &m, &at)) != NULL);           /* two sets */
    }
    some = tn_circuit_select(c, NULL, tn_tensor_from(w.ctx, 1, &three, TN_I32, chosen));
    test_raise(&worst, differs(whole(&w, some), tn_gather(w.ctx, whole(&w, c), 1, tn_tensor_from(w.ctx, 1, &three, TN_I32, chosen))));
    tn_circuit_destroy(some);
    some = tn_circuit_select(c, tn_tensor_from(w.ctx, 1, &three, TN_I32, chosen), NULL);
    tn_circuit_destroy(c);
    c = some;                                                               /* [3,VOCAB] */
    CHECK_STATUS(tn_circuit_means(c, &columns, &rows), TN_OK);
    y = whole(&w, c);
    test_raise(&worst, differs(columns, tn_scale(w.ctx, tn_sum_axis(w.ctx, y, 0), 1.0 / 3)));
    test_raise(&worst, differs(rows, tn_scale(w.ctx, tn_sum_axis(w.ctx, y, 1), 1 / (double)VOCAB)));
    tn_tensor_destroy(columns);
    tn_tensor_destroy(rows);
    tn_circuit_destroy(c);
    WORST("tables of pairs", worst, 1e-12);
    {                                                       /* B+OV of a dictionary: one side direct, one through a head */
        tn_circuit_block_desc od = ZERO;
        tn_circuit_block      o;
        const int64_t        shape[2] = {DIM + 1, DIM + 1};
        tn_tensor           *dictionary = any(&w, 2, 4, DIM + 1, 0), *unit = tn_eye(w.ctx, DIM);
        od.norm1_scale = od.norm2_scale = 1;
        CHECK_STATUS(tn_circuit_block_of(w.ctx, &m, &od, &o), TN_OK);
        tn_tensor *u = tn_reshape(tn_slice(unit, 0, 2, 3), 1, &unit->shape[1]);
        tn_tensor *map = tn_reshape(tn_slice(o.m, 0, 1, 2), 2, shape);
        map = tn_matmul(w.ctx, dictionary, tn_transpose(map, 0, 1));
        REQUIRE((c = tn_circuit_interactions(w.ctx, o.b, u, dictionary, map)) != NULL);
        tn_cp     *term = tn_circuit_block_term(&o, 0, 1);
        tn_tensor *in[2] = {dictionary, dictionary};
        y = tn_cp_apply_each(w.ctx, term, in);              /* B+OV(d_i, d_i), of both orders of the slots */
        tn_cp_destroy(term);
        term = tn_circuit_block_term(&o, 1, 0);
        y = tn_scale(w.ctx, tn_add(w.ctx, y, tn_cp_apply_each(w.ctx, term, in)), 0.5);
        for (int i = 0; i < 4; i++) test_raise(&worst, fabs(entry(c, i, i, &w) - host(y)[i * DIM + 2]));
        tn_circuit_destroy(c);
        CHECK(tn_circuit_interactions(w.ctx, o.b, u, m.embed.w, NULL) == NULL);
        CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "x is [11,6], expected [vectors,7], the operator's inputs with the one");
        tn_cp_destroy(term);
        tn_circuit_block_destroy(&o);
    }
    WORST("interactions of a dictionary", worst, 1e-12);
    REFUSED(w.ctx, tn_circuit_pairs(w.ctx, &m, 0, VOCAB), TN_ERR_ARG, "out is 11, expected 0 to 10");
    close_world(&w);
}

/* A table of 3000 x 3000 in a context that could not hold it, and the same entries as without a limit. */
TEST(a_large_table_is_streamed)
{
    tn_circuit_entries  e[2];
    tn_circuit_top_desc top = ZERO;
    double              worst = 0;
    int64_t             peak = 0;
    top.top = 20;
    for (int limit = 0; limit < 2; limit++) {
        tn_desc     desc = ZERO;
        tn_ctx     *ctx;
        const int64_t shape[2] = {3000, 4};
        desc.seed = 2;
        desc.max_bytes = limit ? (size_t)6 << 20 : 0;
        REQUIRE(CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
        tn_tensor *left = tn_normal(ctx, 2, shape, 0, 1);
        tn_tensor *right = tn_normal(ctx, 2, shape, 0, 1);
        tn_circuit *c = tn_circuit_create(ctx, 1, &left, &right);
        CHECK_STATUS(tn_circuit_top(c, &top, &e[limit]), TN_OK);
        static double v[2][20], at[2][40];
        tn_read(e[limit].values, TN_F64, v[limit], 20);
        tn_read(e[limit].index, TN_F64, at[limit], 40);
        if (limit) {
            peak = (int64_t)tn_ctx_memory(ctx).peak;
            for (int i = 0; i < 20; i++) test_raise(&worst, fabs(v[0][i] - v[1][i]));
            for (int i = 0; i < 40; i++) test_raise(&worst, fabs(at[0][i] - at[1][i]));
            {                                                   /* memory for the entries that there are, not for `top` */
                const int32_t id[2] = {5, 7};
                const int64_t two = 2;
                tn_tensor    *ids = tn_tensor_from(ctx, 1, &two, TN_I32, id);
                tn_circuit   *few = tn_circuit_select(c, ids, ids);
                tn_circuit_top_desc all = top;
                all.top = 100000000;
                CHECK_STATUS(tn_circuit_top(few, &all, &e[0]), TN_OK);
                CHECK_INT(e[0].count, 4);
            }
        }
        CLOSE_CTX(ctx);
    }
    CHECK(peak > 0 && peak < (int64_t)6 << 20);
    WORST("streamed entries", worst, 0);
}

/* ---- maximising inputs ------------------------------------------------------ */

TEST(maximising_inputs)
{
    world      w;
    tn_tensor *p[3];
    tn_cp     *layers[2];
    tn_eigenpairs   eigen;
    tn_circuit_maximum      best;
    tn_circuit_maximum_desc d = ZERO;
    double     worst = 0, largest = -HUGE_VAL;
    REQUIRE(open_on(&w, TN_F64, 29, 1, NULL));
    p[0] = any(&w, 2, 5, 9, 0);
    p[1] = any(&w, 2, 9, 5, 0);
    p[2] = any(&w, 2, 9, 5, 0);
    tn_cp     *cp = tn_cp_create(w.ctx, 2, p[0], p + 1, TN_CP_INPUT_PLAIN);
    tn_net    *net = tn_net_from_cp(w.ctx, cp);
    tn_tensor *u = any(&w, 1, 5, 0, 0);
    CHECK_STATUS(tn_circuit_maximise(net, tn_scale(w.ctx, u, 0), NULL, &best), TN_OK);
    CHECK(best.converged && best.value == 0);                               /* nothing to gain */
    tn_circuit_maximum_destroy(&best);
    d.tol = 1e-15;
    CHECK_STATUS(tn_net_eigen(net, u, 0, &eigen), TN_OK);
    for (int i = 0; i < 5; i++) if (host(eigen.values)[i] > largest) largest = host(eigen.values)[i];
    CHECK_STATUS(tn_circuit_maximise(net, u, &d, &best), TN_OK);
    CHECK(best.converged && best.agree > 0);
    test_raise(&worst, fabs(best.value - largest) / largest);
    tn_circuit_maximum_destroy(&best);
    d.minimum = true;
    d.radius = 2;
    for (int i = 0; i < 5; i++) if (host(eigen.values)[i] < largest) largest = host(eigen.values)[i];
    CHECK_STATUS(tn_circuit_maximise(net, u, &d, &best), TN_OK);
    test_raise(&worst, fabs(best.value - 4 * largest) / fabs(largest));
    tn_circuit_maximum_destroy(&best);
    tn_eigenpairs_destroy(&eigen);
    WORST("maximum against eigenvalues", worst, 1e-9);
    /* order 4 with a constant: the value is that of the function, and no better input is near or in a sample */
    tn_cp_destroy(cp);
    layers[0] = tn_cp_create(w.ctx, 2, p[0], p + 1, TN_CP_INPUT_PLAIN);
    layers[1] = tn_cp_residual(layers[0]);
    const tn_cp *twice[2] = {layers[1], layers[1]};
    tn_net      *deep = tn_net_from_stack(w.ctx, 2, twice, false);
    REQUIRE(deep && deep->constant && deep->legs == 4);
    for (int minimum = 0; minimum < 2; minimum++) {
        const double sign = minimum ? -1 : 1;
        memset(&d, 0, sizeof d);
        d.minimum = minimum;
        CHECK_STATUS(tn_circuit_maximise(deep, u, &d, &best), TN_OK);
        tn_tensor *x = tn_net_apply(w.ctx, deep, best.x);
        double     value = tn_item(tn_matmul(w.ctx, x, tn_reshape_2d(u, 5, 1)));
        CHECK_NEAR(value, best.value, 1e-10 * fabs(value));
        CHECK_NEAR(size_of(tn_slice(best.x, 1, 0, 5)), 1, 1e-12);
        CHECK_NEAR(host(best.x)[5], 1, 0);
        for (int i = 0; i < 200; i++) {
            tn_tensor *y = any(&w, 2, 1, 5, 0);
            y = tn_scale(w.ctx, y, i < 100 ? 1 : 0.01);
            if (i >= 100) y = tn_add(w.ctx, y, tn_slice(best.x, 1, 0, 5));
            y = tn_scale(w.ctx, y, 1 / size_of(y));
            y = tn_matmul(w.ctx, tn_net_apply(w.ctx, deep, y), tn_reshape_2d(u, 5, 1));
            CHECK(sign * tn_item(y) <= sign * best.value + 1e-9 * fabs(best.value));
        }
        tn_circuit_maximum_destroy(&best);
    }
    {   /* two inputs, each of length 1: x^T A y is at most the largest singular value */
        tn_tensor    *a = any(&w, 2, 6, 6, 0), *one = tn_full(w.ctx, 0, NULL, 1);
        tn_net       *pair = tn_net_create(w.ctx, "ij->|i|j", 1, &a, TN_NET_COPY);
        tn_svd_result svd;
        CHECK_STATUS(tn_svd(w.ctx, a, NULL, &svd), TN_OK);
        memset(&d, 0, sizeof d);
        d.tol = 1e-15;
        CHECK_STATUS(tn_circuit_maximise(pair, one, &d, &best), TN_OK);
        CHECK_NEAR(best.value, host(svd.s)[0], 1e-9);
        CHECK(best.x && best.x->shape[0] == 2 && best.x->shape[1] == 6);
        CHECK_NEAR(size_of(best.x), sqrt(2), 1e-12);
        tn_circuit_maximum_destroy(&best);
        tn_svd_destroy(&svd);
        tn_net_destroy(pair);
    }
    {   /* a cubic function has several maxima: more starts are never worse, and not all of them agree */
        tn_tensor *f[3] = {p[1], any(&w, 2, 9, 5, 0), any(&w, 2, 9, 5, 0)};
        tn_cp     *cubic = tn_cp_create(w.ctx, 3, p[0], f, TN_CP_INPUT_PLAIN);
        tn_net    *of = tn_net_from_cp(w.ctx, cubic);
        double     before = -HUGE_VAL;
        int64_t    agree = 0;
        memset(&d, 0, sizeof d);
        for (d.starts = 1; d.starts <= 10; d.starts++) {
            CHECK_STATUS(tn_circuit_maximise(of, u, &d, &best), TN_OK);
            CHECK(best.value >= before - 1e-9 * fabs(before));
            CHECK(best.agree >= 1 && best.agree <= d.starts);
            CHECK(best.value > before + 1e-6 * fabs(before) ? best.agree == 1 : best.agree - agree <= 1);
            before = best.value;
            agree = best.agree;
            tn_circuit_maximum_destroy(&best);
        }
        CHECK(agree < 10);
        tn_net_destroy(of);
        tn_cp_destroy(cubic);
        memset(&d, 0, sizeof d);
    }
    FAILS(w.ctx, tn_circuit_maximise(deep, p[1], &d, &best), TN_ERR_SHAPE, "u is [9,5], expected the 5 outputs");
    d.tol = 2;
    FAILS(w.ctx, tn_circuit_maximise(deep, u, &d, &best), TN_ERR_ARG, "tol 2");
    d.tol = 0;
    d.starts = INT64_MAX;
    FAILS(w.ctx, tn_circuit_maximise(deep, u, &d, &best), TN_ERR_ARG, "circuit_maximise: starts is 9223372036854775807");
    tn_net_destroy(net);
    tn_net_destroy(deep);
    tn_cp_destroy(layers[0]);
    tn_cp_destroy(layers[1]);
    close_world(&w);
}

/* ---- evidence and sparsity ------------------------------------------------- */

TEST(evidence_of_a_data_set)
{
    enum { ROWS = 700, F = 3 };
    static double v[ROWS][F];
    world         w;
    tn_circuit_evidence_desc    d = ZERO;
    tn_circuit_evidence        *e;
    tn_circuit_evidence_result  r;
    double                      worst = 0;
    REQUIRE(open_on(&w, TN_F64, 31, 1, NULL));
    d.features = F; d.top = 7; d.bins = 4; d.low = -0.5; d.high = 0.5;
    REQUIRE((e = tn_circuit_evidence_create(w.ctx, &d)) != NULL);
    FAILS(w.ctx, tn_circuit_evidence_read(e, &r), TN_ERR_ARG, "no rows were added");
    for (int i = 0; i < ROWS; i++) for (int f = 0; f < F; f++) v[i][f] = 1000 * f + test_random_real(&w.seed);
    v[650][1] = v[20][1] = 5000;                                            /* equal ones: the earlier row first */
    for (int i = 0; i < ROWS; i += 100) {
        const int64_t shape[2] = {100, F};
        CHECK_STATUS(tn_circuit_evidence_add(e, tn_tensor_from(w.ctx, 2, shape, TN_F64, v[i])), TN_OK);
        CHECK_STATUS(tn_circuit_evidence_read(e, &r), TN_OK);               /* reading changes nothing */
        tn_circuit_evidence_result_destroy(&r);
    }
    CHECK_STATUS(tn_circuit_evidence_read(e, &r), TN_OK);
    CHECK(r.rows == ROWS && r.top == 7 && r.random == 7);
    for (int f = 0; f < F; f++) {
        const double *top = host(r.values) + 7 * f, *at = host(r.index) + 7 * f;
        double mean = 0, m2 = 0, m4 = 0;
        int    low = 0, better = 0;
        for (int k = 0; k < 7; k++) CHECK(top[k] == v[(int)at[k]][f] && (k == 0 || top[k] <= top[k - 1]));
        for (int i = 0; i < ROWS; i++) {
            better += v[i][f] > top[6];
            low += v[i][f] < -0.25;
            mean += v[i][f] / (double)ROWS;
        }
        for (int i = 0; i < ROWS; i++) {
            const double x = v[i][f] - mean;
            m2 += x * x / (double)ROWS;
            m4 += x * x * x * x / (double)ROWS;
        }
        CHECK_INT(better, 6);
        CHECK_NEAR(host(r.histogram)[4 * f], low, 0);
        test_raise(&worst, fabs(host(r.mean)[f] - mean) / (1 + mean));
        test_raise(&worst, fabs(host(r.std)[f] - sqrt(m2)));
        test_raise(&worst, fabs(host(r.kurtosis)[f] - m4 / (m2 * m2)));
        for (int k = 0; k < 7; k++)
            CHECK(host(r.random_values)[7 * f + k] == v[(int)host(r.random_index)[k]][f]);
    }
    CHECK(host(r.index)[7] == 20 && host(r.index)[8] == 650);
    {
        int late = 0;                                                       /* a reservoir is not the first rows */
        for (int k = 0; k < 7; k++) late += host(r.random_index)[k] >= 100;
        CHECK(late >= 3);
    }
    WORST("moments of the evidence", worst, 1e-9);
    tn_circuit_evidence_result_destroy(&r);
    v[0][0] = HUGE_VAL;
    {
        const int64_t shape[2] = {1, F};
        CHECK_STATUS(tn_circuit_evidence_add(e, tn_tensor_from(w.ctx, 2, shape, TN_F64, v[0])), TN_ERR_NONFINITE);
        CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "a value is not finite");
        CHECK_STATUS(tn_circuit_evidence_add(e, any(&w, 2, 1, F + 1, 0)), TN_ERR_SHAPE);
        CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "values are [1,4] after 700 rows, expected [rows,3]");
    }
    d.high = -1;
    REFUSED(w.ctx, tn_circuit_evidence_create(w.ctx, &d), TN_ERR_ARG, "low -0.5 and high -1");
    close_world(&w);                                                        /* frees e */
}

TEST(sparsity_of_directions)
{
    world         w;
    const double  x[8] = {0, 3, 0, 0, -2, 2, 2, 2}, y[2] = {1, 0};
    int64_t       shape[2] = {2, 4};
    tn_circuit_sparsity s;
    REQUIRE(open_on(&w, TN_F64, 1, 1, NULL));
    CHECK_STATUS(tn_circuit_sparsity_of(w.ctx, tn_tensor_from(w.ctx, 2, shape, TN_F64, x), &s), TN_OK);
    CHECK_NEAR(host(s.kurtosis)[0], 4, 1e-15);
    CHECK_NEAR(host(s.kurtosis)[1], 1, 1e-15);
    CHECK_NEAR(host(s.participation)[0], 1, 1e-15);
    CHECK_NEAR(host(s.participation)[1], 4, 1e-15);
    CHECK_NEAR(s.expected, 2, 1e-15);
    tn_circuit_sparsity_destroy(&s);
    shape[0] = 1; shape[1] = 2;                         /* in the plane the kurtosis is 1.5 + 0.5 cos 4 angle */
    CHECK_STATUS(tn_circuit_sparsity_of(w.ctx, tn_tensor_from(w.ctx, 2, shape, TN_F64, y), &s), TN_OK);
    CHECK_NEAR(s.expected, 1.5, 1e-15);
    CHECK_NEAR(s.std, sqrt(0.125), 1e-14);
    CHECK_NEAR(host(s.deviations)[0], sqrt(2), 1e-13);
    tn_circuit_sparsity_destroy(&s);
    {                                                   /* random directions are as expected */
        const int64_t big[2] = {500, 8};
        double        sum = 0, squares = 0;
        CHECK_STATUS(tn_circuit_sparsity_of(w.ctx, tn_normal(w.ctx, 2, big, 0, 1), &s), TN_OK);
        for (int i = 0; i < 500; i++) {
            sum += host(s.deviations)[i] / 500;
            squares += host(s.deviations)[i] * host(s.deviations)[i] / 500;
        }
        CHECK_NEAR(sum, 0, 0.15);
        CHECK_NEAR(squares, 1, 0.25);
        tn_circuit_sparsity_destroy(&s);
    }
    close_world(&w);
}

/* ---- what is refused --------------------------------------------------------- */

static void refuse(world *w, const tn_transformer_desc *d, const tn_circuit_desc *at, char what, const char *message)
{
    tn_transformer  m;
    tn_circuit_block o;
    tn_circuit_block_desc od = ZERO;
    bool none = false;
    od.norm1_scale = what == 'f' ? 0 : 1;
    od.norm2_scale = 1;
    if (!random_model(w, d, &m)) return;
    if (what == 'q') none = tn_circuit_qk(w->ctx, &m, at) == NULL;
    if (what == 'o') none = tn_circuit_ov(w->ctx, &m, at) == NULL;
    if (what == 't') none = tn_circuit_pairs(w->ctx, &m, at->block, 0) == NULL;
    if (what == 'm') none = tn_circuit_mlp(w->ctx, &m, at->block) == NULL;
    if (what == 'a') none = tn_circuit_attention(w->ctx, &m, at->block, 0) == NULL;
    if (what == 'p' || what == 'f') none = tn_circuit_block_of(w->ctx, &m, &od, &o) != TN_OK;
    CHECK(none);
    CHECK_ERROR(w->ctx, TN_ERR_ARG, message);
}

TEST(refusals_by_name)
{
    world               w;
    tn_transformer_desc d = usual();
    tn_circuit_desc     at = ZERO, later = at;
    later.block = 1;
    later.tokens = true;
    REQUIRE(open_on(&w, TN_F64, 37, 1, NULL));
    refuse(&w, &d, &later, 'q', "norm_scale is 0, expected a number > 0: the denominator of norm1 in block 1");
    refuse(&w, &d, &at, 'f', "norm1_scale is 0 and norm2_scale 1");
    d.qk_norm = true;
    refuse(&w, &d, &later, 'q', "circuit_qk: the model has QK-norm: in later blocks it depends on the text");
    refuse(&w, &d, &at, 'a', "the layer has qk_norm");
    d.x0_residual = true;
    d.qk_norm = false;
    refuse(&w, &d, &later, 'q', "the model has x0_residual");
    refuse(&w, &d, &at, 't', "circuit_pairs: the model has x0_residual: tokens reach the MLP in several ways");
    d = usual();
    d.value_residual = true;
    later.tokens = false;
    refuse(&w, &d, &later, 'o', "circuit_ov: the model has value_residual");
    d = usual();
    d.head_norm = true;
    refuse(&w, &d, &at, 'o', "the model has head_norm");
    refuse(&w, &d, &at, 'p', "the model has head_norm");
    d = usual();
    d.attention = TN_ATTENTION_DIFFERENTIAL;
    refuse(&w, &d, &at, 'q', "differential attention: its two sets are not multiplied, expected set 1 or 2");
    refuse(&w, &d, &at, 'o', "the model has differential attention");
    refuse(&w, &d, &at, 'a', "the layer's kind is differential");
    at.set = 3;
    refuse(&w, &d, &at, 'q', "set is 3, expected 0 to 2");
    at.set = 0;
    d = usual();
    d.attention = TN_ATTENTION_SOFTMAX;
    refuse(&w, &d, &at, 'a', "the layer's kind is softmax");
    d.norm_place = TN_PLACE_POST;
    refuse(&w, &d, &at, 'o', "the model has post norms");
    later.tokens = true;
    refuse(&w, &d, &later, 'q', "the model has post norms");
    d.norm_place = TN_PLACE_SANDWICH;
    refuse(&w, &d, &at, 'm', "the model has sandwich norms");
    d = usual();
    d.mlp = TN_MLP_SWIGLU;
    refuse(&w, &d, &at, 'm', "the MLP of block 0 is swiglu, expected bilinear");
    refuse(&w, &d, &at, 'p', "see tn_mlp_modifier");
    d.mlp = TN_MLP_BILINEAR;
    d.mlp_order = 3;
    refuse(&w, &d, &at, 'p', "the MLP of block 0 has order 3, expected 2");
    at.head = HEADS;
    refuse(&w, &d, &at, 'q', "head is 2, expected 0 to 1");
    at.head = 0;
    at.block = 2;
    refuse(&w, &d, &at, 'o', "block is 2, expected 0 to 1");
    at.block = 0;
    at.key = -1;
    refuse(&w, &d, &at, 'q', "key -1, expected positions from 0 to 2147483647");
    at.key = INT64_MAX;
    refuse(&w, &d, &at, 'o', "key 9223372036854775807, expected positions from 0 to 2147483647");
    at.key = 0;
    REFUSED(w.ctx, tn_circuit_qk(w.ctx, NULL, &later), TN_ERR_ARG, "the model is NULL");
    REFUSED(w.ctx, tn_circuit_bigrams(w.ctx, NULL, 0, 0), TN_ERR_ARG, "circuit_bigrams: the model is NULL");
    {                                                       /* a NaN among the weights */
        tn_transformer      m;
        tn_circuit         *c;
        tn_circuit_entries  e;
        tn_circuit_top_desc top = ZERO;
        const double        nan = HUGE_VAL - HUGE_VAL;
        d = usual();
        top.top = 3;
        REQUIRE(random_model(&w, &d, &m));
        tn_write(tn_slice(tn_slice(m.head.w, 0, 3, 4), 1, 0, 1), TN_F64, &nan, 1);
        REQUIRE((c = tn_circuit_bigrams(w.ctx, &m, 1, 0)) != NULL);
        FAILS(w.ctx, tn_circuit_top(c, &top, &e), TN_ERR_NONFINITE, "circuit_top: an entry in rows 0 to 10 is not finite");
        CHECK(tn_circuit_rows(w.ctx, c, INT64_MAX, 1) == NULL);
        CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "first is 9223372036854775807 and count 1, expected rows from 0 to 10");
        REFUSED(w.ctx, tn_circuit_bigrams(w.ctx, &m, 1, INT64_MAX), TN_ERR_ARG, "position 9223372036854775807");
        top.top = 0;
        FAILS(w.ctx, tn_circuit_top(c, &top, &e), TN_ERR_ARG, "top is 0");
        tn_circuit_destroy(c);
    }
    close_world(&w);
}

TEST_MAIN(factors_give_rows, first_block_is_exact_with_norms, directions_of_a_later_block, tokens_of_a_later_block,
          virtual_heads_and_scores, copying_scores, block_doubled_compact_and_direct, bigrams_are_the_model_without_attention,
          bigrams_of_many_blocks, pairs_of_tokens, a_large_table_is_streamed, maximising_inputs, evidence_of_a_data_set, sparsity_of_directions,
          refusals_by_name)
