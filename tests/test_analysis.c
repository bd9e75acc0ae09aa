/* test_analysis.c: what analyses of weights are made of (top-k, tables, views of layers, patterns), and the analyses of
   operators themselves. */
#include "kit.h"

static tn_tensor *random_tensor(tn_ctx *ctx, uint64_t *seed, int rank, const int64_t *shape)
{
    tn_tensor *t = tn_tensor_nd(ctx, TN_REAL, rank, shape);
    int64_t    n = tn_tensor_count(t);
    double    *v = doubles(n);
    for (int64_t i = 0; i < n; i++) v[i] = (double)(float)test_random_real(seed);
    CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
    return t;
}

static inline tn_tensor *random_2d(tn_ctx *ctx, uint64_t *seed, int64_t n, int64_t m)
{
    int64_t shape[2] = {n, m};
    return random_tensor(ctx, seed, 2, shape);
}

/* ---- top-k, sort, eye ------------------------------------------------------------------------------------ */

/* Whether x comes before y, by the documented rule. */
static bool first_of(tn_order order, double x, double y)
{
    const bool nx = x != x, ny = y != y;
    if (order == TN_ORDER_SMALLEST) return !nx && (ny || x < y);
    if (nx || ny) return nx && !ny;
    return order == TN_ORDER_MAGNITUDE ? fabs(x) > fabs(y) : x > y;
}

TEST(topk_is_a_stable_sort)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {2, 7, 3}, {3, 1, 2}, {1, 40, 1}, {2, 0, 3}, {0, 5, 2}, {4, 5, 1}};
    for (int dtype = 0; dtype < 2; dtype++) {
        tn_ctx  *ctx = ctx_in(NULL, dtype ? TN_F64 : TN_F32, 0);
        uint64_t seed = 3;
        for (int round = 0; round < 7 * 3 * 3; round++) {
            const int64_t *shape = shapes[round % 7], n = shape[1];
            const tn_order order = (tn_order)(round / 7 % 3);
            int64_t count = shape[0] * n * shape[2], k = round < 21 ? n : round < 42 ? n / 2 : n > 0;
            double *v = doubles(count);
            tn_tensor *t = tn_tensor_nd(ctx, TN_REAL, 3, shape), *ids;
            for (int64_t i = 0; i < count; i++) {                    /* full of ties, with NaN and both zeros */
                v[i] = (double)test_random_int(&seed, -3, 3);
                if (v[i] == 3) v[i] = (double)NAN;
                if (v[i] == 0 && i % 2) v[i] = -0.0;
            }
            CHECK_STATUS(tn_write(t, TN_F64, v, count), TN_OK);
            tn_tensor *values = k == n ? tn_sort(ctx, t, 1, order, &ids) : tn_topk(ctx, t, -2, k, order, &ids);
            CHECK_CTX(ctx);
            REQUIRE(values && ids && values->shape[1] == k && ids->dtype == TN_I32);
            double *got = host(values), *at = host(ids);
            for (int64_t row = 0; row < shape[0] * shape[2] && n > 0; row++) {
                const double *x = v + row / shape[2] * n * shape[2] + row % shape[2];
                int64_t place = row / shape[2] * k * shape[2] + row % shape[2], wrong = 0;
                for (int64_t i = 0; i < n; i++) {
                    int64_t before = 0;                              /* how many come before element i */
                    for (int64_t j = 0; j < n; j++) {
                        bool later = first_of(order, x[i * shape[2]], x[j * shape[2]]);
                        before += first_of(order, x[j * shape[2]], x[i * shape[2]]) || (!later && j < i);
                    }
                    if (before >= k) continue;
                    wrong += (int64_t)at[place + before * shape[2]] != i;
                    const double value = x[i * shape[2]];
                    wrong += value == value && memcmp(&got[place + before * shape[2]], &value, sizeof value) != 0;
                }
                CHECK_INT(wrong, 0);
            }
            tn_ctx_reset(ctx);
        }
        CLOSE_CTX(ctx);
    }
}

#ifndef TN_NO_TRAINING
TEST(topk_has_a_gradient)
{
    tn_ctx    *ctx = ctx_in(NULL, TN_F64, 0);
    double     v[6] = {1, -5, 2, 4, 0, 3}, want[6] = {2, -10, 4, 8, 0, 0};
    tn_tensor *t = tn_tensor_2d(ctx, TN_REAL, 3, 2);             /* columns 1 2 0 and -5 4 3 */
    CHECK_STATUS(tn_write(t, TN_F64, v, 6), TN_OK);
    CHECK_STATUS(tn_watch(t), TN_OK);
    tn_record(ctx);
    tn_tensor *y = tn_topk(ctx, tn_transpose(t, 0, 1), 1, 2, TN_ORDER_MAGNITUDE, NULL);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, y))), TN_OK);
    double *g = host(t->grad);
    for (int i = 0; i < 6; i++) CHECK_NEAR(g[i], want[i], 0);
    CLOSE_CTX(ctx);
}
#endif

TEST(topk_refuses)
{
    tn_ctx    *ctx = ctx_in(NULL, TN_F32, 0);
    tn_tensor *t = tn_eye(ctx, 3), *ids = t;
    CHECK(!tn_topk(ctx, t, 0, 4, TN_ORDER_LARGEST, &ids) && !ids);
    CHECK_ERROR(ctx, TN_ERR_ARG, "topk: k is 4, expected 0 to 3, the extent of axis 0");
    REFUSED(ctx, tn_topk(ctx, t, 0, -1, TN_ORDER_LARGEST, NULL), TN_ERR_ARG, "topk: k is -1, expected 0 or more");
    REFUSED(ctx, tn_sort(ctx, t, 2, TN_ORDER_LARGEST, NULL), TN_ERR_ARG, "sort: axis is 2");
    REFUSED(ctx, tn_sort(ctx, t, 0, (tn_order)3, NULL), TN_ERR_ARG, "sort: order is 3");
    CHECK(!tn_topk(ctx, NULL, 0, 1, TN_ORDER_LARGEST, NULL) && !tn_sort(ctx, NULL, 0, TN_ORDER_LARGEST, NULL));
    tn_ctx_clear_error(ctx);
    CLOSE_CTX(ctx);
}

TEST(eye)
{
    tn_ctx *ctx = ctx_in(NULL, TN_F32, 0);
    for (int64_t n = 0; n < 4; n++) {
        tn_tensor *t = tn_eye(ctx, n);
        double    *v = host(t);
        CHECK(t && t->rank == 2 && t->shape[0] == n && t->shape[1] == n);
        for (int64_t i = 0; i < n * n; i++) CHECK_NEAR(v[i], i / n == i % n, 0);
    }
    CHECK(!tn_eye(ctx, -1));
    tn_ctx_clear_error(ctx);
    CLOSE_CTX(ctx);
}

/* ---- tables ---------------------------------------------------------------------------------------------- */

static void check_table(const tn_tensor *t, const tn_tensor_table_desc *d, const char *want)
{
    char    text[512], part[8];
    int64_t n = tn_tensor_table(t, d, text, sizeof text);
    CHECK_INT(n, strlen(want));
    CHECK_STR(text, want);
    CHECK_INT(tn_tensor_table(t, d, NULL, 0), n);                    /* the length alone, and a short buffer */
    CHECK_INT(tn_tensor_table(t, d, part, sizeof part), n);
    CHECK(strncmp(part, want, strlen(part)) == 0 && strlen(part) == (n < 7 ? (size_t)n : 7));
}

TEST(tables)
{
    tn_ctx       *ctx = ctx_in(NULL, TN_F64, 0);
    const double  v[6] = {1, -0.25, 1e-9, 12.5, -3, 1.0 / 3};
    const char   *rows[2] = {"ab", "\xc3\xa9\n"}, *columns[3] = {"x", "long name", "z"};
    tn_tensor    *t = tn_tensor_2d(ctx, TN_REAL, 2, 3);
    tn_tensor_table_desc d = ZERO;
    char          text[8];
    const int64_t six = 6;
    CHECK_STATUS(tn_write(t, TN_F64, v, 6), TN_OK);
    check_table(t, NULL, "      0      1       2\n0     1  -0.25   1e-09\n1  12.5     -3  0.3333");
    d.row_names = rows;
    d.column_names = columns;
    d.digits = 2;
    check_table(t, &d, "      x  long name      z\nab    1      -0.25  1e-09\n\xc3\xa9\\n  12         -3   0.33");
    d.top = 2;
    d.digits = 0;
    check_table(t, &d, "\xc3\xa9\\n  x  12.5\nab   x     1");
    d.order = TN_ORDER_MAGNITUDE;
    check_table(t, &d, "\xc3\xa9\\n  x          12.5\n\xc3\xa9\\n  long name    -3");
    d.symmetric = true;
    check_table(t, &d, "\xc3\xa9\\n  long name  -3\nab   x           1");
    d.each_row = true;
    check_table(t, &d, "ab   x 1  long name -0.25\n\xc3\xa9\\n  long name -3  z 0.3333");
    d.symmetric = d.each_row = false;
    d.top = 1;
    d.row_names = NULL;
    d.order = TN_ORDER_LARGEST;
    d.top = 2;
    check_table(tn_reshape(t, 1, &six), &d, "3  12.5\n0     1");
    check_table(tn_tensor_2d(ctx, TN_REAL, 0, 3), NULL, "  0  1  2");
    check_table(tn_tensor_2d(ctx, TN_REAL, 0, 3), &d, "");
    CHECK_CTX(ctx);
    d.top = -1;
    CHECK_INT(tn_tensor_table(t, &d, text, sizeof text), -1);
    CHECK_ERROR(ctx, TN_ERR_ARG, "table: top is -1");
    d.top = 1;
    d.order = (tn_order)9;
    CHECK_INT(tn_tensor_table(t, &d, text, sizeof text), -1);
    CHECK_ERROR(ctx, TN_ERR_ARG, "table: order is 9, not a valid tn_order");
    CHECK_INT(tn_tensor_table(tn_tensor_3d(ctx, TN_REAL, 1, 1, 1), NULL, text, sizeof text), -1);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "table: t is [1,1,1], expected rank 1 or 2");
    CHECK_INT(tn_tensor_table(NULL, NULL, text, sizeof text), -1);
    CLOSE_CTX(ctx);
}

/* ---- views of layers, and patterns ----------------------------------------------------------------------- */

TEST(views_of_layers)
{
    tn_ctx     *ctx = ctx_in(NULL, TN_F64, 0);
    tn_params  *ps = tn_params_create(ctx);
    tn_mlp_desc md = ZERO;
    tn_mlp      mlp;
    md.in = 3; md.hidden = 4; md.order = 3;
    CHECK_STATUS(tn_mlp_init(ps, "mlp", &md, &mlp), TN_OK);
    for (int64_t e = 0; e < 3; e++) {
        tn_tensor *w = tn_mlp_encoder(&mlp, e);
        REQUIRE(w && w->rank == 2 && w->shape[0] == 4 && w->shape[1] == 3);
        CHECK(w->data == (char *)mlp.w->data + e * 12 * 8 && tn_tensor_is_contiguous(w));       /* a view, no copy */
    }
    REFUSED(ctx, tn_mlp_encoder(&mlp, 3), TN_ERR_ARG, "mlp_encoder: e is 3, expected 0 to 2");
    CHECK(!tn_mlp_encoder(NULL, 0) && !tn_attention_head(NULL, 0, TN_HEAD_V));
    CLOSE_CTX(ctx);
}

/* For each kind: the layer's output from its patterns and the views of its heads, sum_h P_h x V_h^T O_h^T. */
TEST(patterns_and_heads_make_the_layer)
{
    for (int kind = TN_ATTENTION_SOFTMAX; kind <= TN_ATTENTION_DIFFERENTIAL_PLAIN; kind++) {
        tn_ctx   *ctx = ctx_in(NULL, TN_F64, 0);
        uint64_t  seed = 7;
        int64_t   shape[3] = {2, 5, 6};
        double    worst = 0;
        tn_params *ps = tn_params_create(ctx);
        tn_attention_desc d = ZERO;
        tn_attention      layer;
        d.kind = (tn_attention_kind)kind;
        d.dim = 6; d.heads = 3; d.d_qk = 4; d.d_v = 2; d.out = 7; d.window = kind == TN_ATTENTION_SQUARED ? 3 : 0;
        CHECK_STATUS(tn_attention_init(ps, "a", &d, &layer), TN_OK);
        tn_tensor *x = random_tensor(ctx, &seed, 3, shape), *p = tn_attention_pattern(ctx, &layer, x);
        REQUIRE(p && p->rank == 4 && p->shape[0] == 2 && p->shape[1] == 3 && p->shape[2] == 5 && p->shape[3] == 5);
        for (int64_t b = 0; b < 2; b++) {
            tn_tensor *y = NULL, *xb = tn_reshape_2d(tn_slice(x, 0, b, b + 1), 5, 6);
            for (int64_t h = 0; h < 3; h++) {
                tn_tensor *ph = tn_reshape_2d(tn_slice(tn_slice(p, 0, b, b + 1), 1, h, h + 1), 5, 5);
                tn_tensor *v = tn_attention_head(&layer, h, TN_HEAD_V), *o = tn_attention_head(&layer, h, TN_HEAD_O);
                tn_tensor *head = tn_affine(ctx, tn_matmul(ctx, ph, xb), v, NULL);
                if (kind == TN_ATTENTION_DIFFERENTIAL)
                    head = tn_scale(ctx, tn_rmsnorm(ctx, head, NULL, 1e-5), 1 - layer.desc.lambda_init);
                head = tn_affine(ctx, head, o, NULL);
                y = y ? tn_add(ctx, y, head) : head;
            }
            double *want = host(tn_slice(tn_attention_forward(ctx, &layer, x, NULL), 0, b, b + 1));
            double *got = host(y);
            for (int i = 0; i < 35; i++) test_raise(&worst, fabs(want[i] - got[i]));
        }
        WORST(tn_attention_kind_name(d.kind), worst, 1e-14);
        CLOSE_CTX(ctx);
    }
}

/* Scores from Q and K of the heads, by hand: squared and bilinear patterns without positions. */
TEST(heads_make_the_pattern)
{
    for (int kind = TN_ATTENTION_SQUARED; kind <= TN_ATTENTION_BILINEAR; kind++) {
        tn_ctx   *ctx = ctx_in(NULL, TN_F64, 0);
        uint64_t  seed = 8;
        int64_t   shape[3] = {1, 4, 5};
        double    worst = 0;
        tn_params *ps = tn_params_create(ctx);
        tn_attention_desc d = ZERO;
        tn_attention      layer;
        d.kind = (tn_attention_kind)kind;
        d.dim = 5; d.heads = 2; d.d_qk = 3; d.d_v = 2; d.no_rope = true; d.bidirectional = true; d.row_scale = TN_ROW_SCALE_NONE;
        CHECK_STATUS(tn_attention_init(ps, "a", &d, &layer), TN_OK);
        tn_tensor *x = random_tensor(ctx, &seed, 3, shape), *x2 = tn_reshape_2d(x, 4, 5);
        tn_tensor *p = tn_attention_pattern(ctx, &layer, x);
        double    *got = host(p);
        for (int64_t h = 0; h < 2; h++) {
            double *s[2];
            for (int set = 0; set < 2; set++) {
                bool two = set == 1 && kind == TN_ATTENTION_BILINEAR;
                tn_tensor *q = tn_attention_head(&layer, h, two ? TN_HEAD_Q2 : TN_HEAD_Q1);
                tn_tensor *k = tn_attention_head(&layer, h, two ? TN_HEAD_K2 : TN_HEAD_K1);
                q = tn_affine(ctx, x2, q, NULL);
                s[set] = host(tn_matmul(ctx, q, tn_transpose(tn_affine(ctx, x2, k, NULL), 0, 1)));
            }
            for (int i = 0; i < 16; i++) test_raise(&worst, fabs(got[h * 16 + i] - s[0][i] * s[1][i] / 9));
        }
        WORST(tn_attention_kind_name(d.kind), worst, 1e-15);
        REFUSED(ctx, tn_attention_head(&layer, 2, TN_HEAD_Q1), TN_ERR_ARG, "attention_head: h is 2, expected 0 to 1");
        CHECK((tn_attention_head(&layer, 0, TN_HEAD_K2) != NULL) == (kind == TN_ATTENTION_BILINEAR));
        if (kind == TN_ATTENTION_SQUARED) CHECK_ERROR(ctx, TN_ERR_ARG, "attention_head: part is 3");
        CLOSE_CTX(ctx);
    }
}

/* ---- small products: values and gradients are in cases.h -------------------------------------------------- */

TEST(products_refuse)
{
    tn_ctx       *ctx = ctx_in(NULL, TN_F32, 0);
    tn_tensor    *a = tn_tensor_2d(ctx, TN_REAL, 2, 3), *b = tn_tensor_2d(ctx, TN_REAL, 4, 5);
    const int64_t shape[3] = {2, 3, 4}, eight[8] = {1, 1, 1, 1, 1, 1, 1, 3};
    tn_tensor    *c = tn_tensor_3d(ctx, TN_REAL, 1, 1, 3), *deep = tn_full(ctx, 8, eight, 1);
    REFUSED(ctx, tn_tensordot(ctx, a, 2, b, 1), TN_ERR_ARG, "tensordot: axis is 2, expected an axis of [2,3]");
    REFUSED(ctx, tn_tensordot(ctx, a, 1, b, -3), TN_ERR_ARG, "tensordot: axis is -3, expected an axis of [4,5]");
    REFUSED(ctx, tn_tensordot(ctx, a, -1, b, 0), TN_ERR_SHAPE, "tensordot: axis 1 of u [2,3] and axis 0 of v [4,5] differ");
    REFUSED(ctx, tn_tensordot(ctx, c, 2, deep, 7), TN_ERR_SHAPE, "has rank 9, expected at most 8");
    CHECK(!tn_khatri_rao(ctx, a, b));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "khatri_rao: a is [2,3] but b is [4,5], expected matrices with equal columns");
    CHECK(!tn_khatri_rao_rows(ctx, a, b));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "khatri_rao_rows: a is [2,3] but b is [4,5], expected matrices with equal rows");
    CHECK(!tn_kronecker(ctx, a, c));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "kronecker: a is [2,3] but b is [1,1,3], expected equal ranks of at most 4");
    REFUSED(ctx, tn_mode_product(ctx, c, 1, a), TN_ERR_SHAPE, "mode_product: a is [2,3], expected [m,1] for axis 1 of x [1,1,3]");
    REFUSED(ctx, tn_unfold(ctx, a, 2), TN_ERR_ARG, "unfold: axis is 2");
    REFUSED(ctx, tn_fold(ctx, a, 1, 3, shape), TN_ERR_SHAPE, "fold: m is [2,3], expected the unfolding of [2,3,4] by axis 1");
    REFUSED(ctx, tn_fold(ctx, a, 3, 3, shape), TN_ERR_ARG, "fold: axis is 3");
    CLOSE_CTX(ctx);
}

/* X_(n) = A_n Y_(n) (A_1 (x) A_2 (x) A_3 without A_n)^T, in row-major order. */
TEST(unfoldings_of_mode_products)
{
    tn_ctx   *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t  seed = 12;
    const int64_t shape[3] = {2, 3, 4};
    tn_tensor *y = random_tensor(ctx, &seed, 3, shape), *x = y, *a[3];
    double     worst = 0;
    for (int k = 0; k < 3; k++) {
        a[k] = random_2d(ctx, &seed, 5 - k, shape[k]);
        x = tn_mode_product(ctx, x, k, a[k]);
    }
    for (int n = 0; n < 3; n++) {
        tn_tensor *others = tn_kronecker(ctx, a[n == 0], a[n == 2 ? 1 : 2]);
        tn_tensor *want = tn_affine(ctx, tn_matmul(ctx, a[n], tn_unfold(ctx, y, n)), others, NULL);
        double    *u = host(tn_unfold(ctx, x, n)), *v = host(want);
        for (int64_t i = 0; i < tn_tensor_count(want); i++) test_raise(&worst, fabs(u[i] - v[i]));
    }
    WORST("unfolded mode products", worst, 1e-14);
    CLOSE_CTX(ctx);
}

/* ---- operators --------------------------------------------------------------------------------------------- */

static tn_cp *random_cp(tn_ctx *ctx, uint64_t *seed, int order, int64_t out, int64_t h, int64_t n, bool constant)
{
    tn_tensor *f[4];
    for (int k = 0; k < order; k++) f[k] = random_2d(ctx, seed, h, n);
    return tn_cp_create(ctx, order, random_2d(ctx, seed, out, h), f, constant ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
}

static double largest_difference(const tn_tensor *a, const tn_tensor *b)
{
    double *x = host(a), *y = host(b), worst = 0;
    CHECK_INT(tn_tensor_count(a), tn_tensor_count(b));
    for (int64_t i = 0; i < tn_tensor_count(a); i++) test_raise(&worst, fabs(x[i] - y[i]));
    return worst;
}

/* What follows from the definition: against itself nothing is signal, against a smaller one much is; a strong direction that
   is planted in noise is found; and equal seeds give equal results. */
TEST(signal_against_its_nulls)
{
    for (int dtype = 0; dtype < 2; dtype++) {
        tn_ctx    *ctx = ctx_in(NULL, dtype ? TN_F64 : TN_F32, 0);
        const double eps = dtype ? 1e-12 : 1e-5;
        uint64_t   seed = 21;
        const int64_t one = 1;
        tn_cp     *cp = random_cp(ctx, &seed, 2, 3, 9, 12, false);
        tn_signal  s, again;
        tn_signal_desc d = ZERO;
        tn_tensor *u = tn_scale(ctx, tn_eye(ctx, 3), 0.5);
        tn_cp     *half = tn_cp_fold_out(cp, u, NULL);
        tn_cp     *nulls[2] = {half, half};
        d.nulls = (const tn_cp *const *)nulls;
        d.draws = 2;
        REQUIRE(CHECK_STATUS(tn_cp_signal(cp, &d, &s), TN_OK));
        double *v = host(s.values), *null = host(s.null_values);
        double *edge = host(s.edge), *n = host(s.signal);
        for (int64_t o = 0; o < 3; o++) {
            int64_t beyond = 0;
            for (int64_t i = 0; i < s.count; i++) {
                CHECK_NEAR(null[o * s.count + i], fabs(v[o * s.count + i]) / 2, eps * 10);
                beyond += fabs(v[o * s.count + i]) > edge[o];
            }
            CHECK_NEAR(edge[o], fabs(v[o * s.count]) / 2, eps * 10);
            CHECK_INT(n[o], beyond);
            CHECK(beyond > 0);
        }
        d.scaled = true;                                             /* to the same norm: the same values */
        tn_signal_destroy(&s);
        CHECK_STATUS(tn_cp_signal(cp, &d, &s), TN_OK);
        v = host(s.values);
        null = host(s.null_values);
        for (int64_t i = 0; i < 3 * s.count; i++) CHECK_NEAR(null[i], fabs(v[i]), eps * 10);
        d.scaled = false;
        tn_signal_destroy(&s);
        nulls[0] = nulls[1] = cp;
        CHECK_STATUS(tn_cp_signal(cp, &d, &s), TN_OK);
        n = host(s.signal);
        for (int64_t o = 0; o < 3; o++) CHECK_NEAR(n[o], 0, 0);
        tn_signal_destroy(&s);
        d.nulls = NULL;
        d.scaled = true;
        for (int null_of = 0; null_of < 2; null_of++) {              /* one planted direction in noise, 64 inputs */
            double     w[64 * 40], p[40];
            tn_tensor *f[2], *pt = tn_tensor_2d(ctx, TN_REAL, 1, 40);
            f[0] = tn_tensor_2d(ctx, TN_REAL, 40, 64);
            f[1] = tn_tensor_2d(ctx, TN_REAL, 40, 64);
            for (int k = 0; k < 2; k++) {
                for (int64_t i = 0; i < 40 * 64; i++) w[i] = test_random_real(&seed);
                for (int64_t i = 0; i < 10 * 64; i++) w[i] += 4 * ((i % 64) % 2 ? 1 : -1);
                CHECK_STATUS(tn_write(f[k], TN_F64, w, 40 * 64), TN_OK);
            }
            for (int i = 0; i < 40; i++) p[i] = i < 10 ? 1 : test_random_real(&seed);
            CHECK_STATUS(tn_write(pt, TN_F64, p, 40), TN_OK);
            tn_cp *planted = tn_cp_create(ctx, 2, pt, f, TN_CP_INPUT_PLAIN);
            d.null = null_of ? TN_NULL_MODEL_PAIRS : TN_NULL_MODEL_ENTRIES;
            d.draws = 9;
            CHECK_STATUS(tn_cp_signal(planted, &d, &s), TN_OK);
            CHECK_STATUS(tn_cp_signal(planted, &d, &again), TN_OK);
            n = host(s.signal);
            if (null_of == 0) CHECK_INT(n[0], 1);                    /* the rows keep their numbers, not the pattern */
            CHECK_NEAR(largest_difference(s.null_values, again.null_values), 0, 0);
            d.seed++;
            tn_signal_destroy(&again);
            CHECK_STATUS(tn_cp_signal(planted, &d, &again), TN_OK);
            CHECK(largest_difference(s.null_values, again.null_values) > 0);
            CHECK_INT(tn_tensor_count(s.edge), one);
            tn_signal_destroy(&s);
            tn_signal_destroy(&again);
        }
        /* A draw by itself is that of the comparison; weights without structure seldom have a value beyond it: of 200 outputs
           at most one in twenty, as draws is 19, but for chance. */
        d.draws = 0;
        d.scaled = false;
        d.null = TN_NULL_MODEL_ENTRIES;
        tn_cp *draw = tn_cp_null(cp, &d, 0);
        d.nulls = (const tn_cp *const *)&draw;
        d.draws = 1;
        CHECK_STATUS(tn_cp_signal(cp, &d, &s), TN_OK);
        d.nulls = NULL;
        CHECK_STATUS(tn_cp_signal(cp, &d, &again), TN_OK);
        CHECK_NEAR(largest_difference(s.edge, again.edge), 0, 0);
        CHECK_NEAR(largest_difference(draw->p, cp->p), 0, 0);
        tn_signal_destroy(&s);
        tn_signal_destroy(&again);
        double found = 0;
        d.draws = 19;
        for (int k = 0; k < 40 && dtype; k++) {
            tn_cp *noise = random_cp(ctx, &seed, 2, 5, 8, 10, false);
            CHECK_STATUS(tn_cp_signal(noise, &d, &s), TN_OK);
            n = host(s.signal);
            for (int64_t o = 0; o < 5; o++) found += n[o] > 0;
            tn_signal_destroy(&s);
            tn_cp_destroy(noise);
        }
        CHECK(found <= 16);
        REFUSED(ctx, tn_cp_null(cp, &d, -1), TN_ERR_ARG, "cp_null: draw is -1, expected 0 to ");
        d.draws = -1;
        FAILS(ctx, tn_cp_signal(cp, &d, &s), TN_ERR_ARG, "signal: draws is -1");
        CHECK(!s.values && !s.edge);
        d.draws = 0;
        d.count = -2;
        FAILS(ctx, tn_cp_signal(cp, &d, &s), TN_ERR_ARG, "signal: count is -2, expected 0 or more");
        FAILS(ctx, tn_cp_signal(cp, &d, NULL), TN_ERR_ARG, "signal: out is NULL");
        CLOSE_CTX(ctx);
    }
}

/* sum over i,j of x_i Q_ij x_j of each output, by the operator */
static double *outputs_of(const tn_cp *cp, tn_tensor *x) { return host(tn_cp_apply(cp->ctx, cp, x)); }

TEST(certificates_hold)
{
    double worst_error = 0, worst_bound = 0, worst_tight = 0, worst_mean = 0;
    for (int round = 0; round < 8; round++) {
        const bool constant = round & 1, data = round & 2, wide = round & 4;
        const int64_t out = 3, h = wide ? 3 : 8, n = 6, plain = n - constant, rows = 200;
        tn_ctx    *ctx = ctx_in(NULL, TN_F64, 0);
        uint64_t   seed = 40 + (uint64_t)round;
        tn_cp     *cp = random_cp(ctx, &seed, 2, out, h, n, constant);
        tn_tensor *x = random_2d(ctx, &seed, rows, plain), *s = NULL;
        const double radius = 1.5;
        tn_certificate c;
        if (data) {
            tn_tensor *x1 = constant ? tn_append_one(ctx, x) : x;
            s = tn_scale(ctx, tn_matmul(ctx, tn_transpose(x1, 0, 1), x1), 1.0 / (double)rows);
        }
        REQUIRE(CHECK_STATUS(tn_cp_certify(cp, 0.4, radius, s, &c), TN_OK));
        double    *rank = host(c.rank), *error = host(c.error);
        double    *bound = host(c.bound), *mean = host(c.mean);
        tn_cp     *full = data ? tn_cp_data_metric(cp, s) : cp;
        tn_cp     *cut = data ? tn_cp_data_metric(c.cp, s) : c.cp;
        tn_tensor *dense = tn_cp_dense_symmetric(full), *short_ = tn_cp_dense_symmetric(cut);
        double    *q = host(dense), *qk = host(short_), *y, *yk;
        tn_eigenpairs   e;
        CHECK_STATUS(tn_cp_eigen_all(full, 0, &e), TN_OK);
        double *l = host(e.values);
        for (int64_t o = 0; o < out; o++) {
            double size = frobenius(q + o * n * n, n * n), tail = 0;
            int64_t k = (int64_t)rank[o];
            for (int64_t i = 0; i < n * n; i++) qk[o * n * n + i] -= q[o * n * n + i];
            test_raise(&worst_error, fabs(frobenius(qk + o * n * n, n * n) / size - error[o]));
            CHECK(error[o] <= 0.4);
            for (int64_t i = k - 1; k > 0 && i < e.count; i++) tail += l[o * e.count + i] * l[o * e.count + i];
            CHECK(k == 0 || sqrt(tail) > 0.4 * size * (1 - 1e-9));   /* one pair fewer would not do */
            double next = k < e.count ? fabs(l[o * e.count + k]) : 0;
            test_raise(&worst_tight, fabs(bound[o] - (radius * radius + (constant && !data)) * next));
        }
        for (int64_t sample = 0; sample < 20; sample++) {            /* points of the ball */
            double *z = doubles(n);
            tn_tensor *point = random_2d(ctx, &seed, 1, data ? n : plain);
            double *v = host(point);
            double  length = frobenius(v, data ? n : plain);
            for (int64_t i = 0; i < (data ? n : plain); i++) z[i] = v[i] * radius / length;
            CHECK_STATUS(tn_write(point, TN_F64, z, data ? n : plain), TN_OK);
            y = outputs_of(full, point);
            yk = outputs_of(cut, point);
            for (int64_t o = 0; o < out; o++) test_raise(&worst_bound, fabs(y[o] - yk[o]) - bound[o]);
        }
        y = outputs_of(cp, x);
        yk = outputs_of(c.cp, x);
        for (int64_t o = 0; o < out && data; o++) {
            double sum = 0;
            for (int64_t i = 0; i < rows; i++) sum += fabs(y[i * out + o] - yk[i * out + o]) / (double)rows;
            test_raise(&worst_mean, sum - mean[o]);
            CHECK(sum > mean[o] / 20);                               /* a bound of the right size */
        }
        if (!data) CHECK(mean[0] != mean[0]);
        tn_certificate_destroy(&c);
        FAILS(ctx, tn_cp_certify(cp, 1, 1, NULL, &c), TN_ERR_ARG, "certify: error is 1, expected 0 <= error < 1");
        FAILS(ctx, tn_cp_certify(cp, 0, -1, NULL, &c), TN_ERR_ARG, "certify: radius is -1");
        FAILS(ctx, tn_cp_certify(cp, 0, 1, NULL, NULL), TN_ERR_ARG, "certify: out is NULL");
        CHECK_STATUS(tn_cp_certify(cp, 0, 1, NULL, &c), TN_OK);
        CHECK(largest_difference(tn_cp_dense_symmetric(c.cp), tn_cp_dense_symmetric(cp)) < 1e-13);
        tn_certificate_destroy(&c);
        CHECK_STATUS(tn_assign(cp->p, tn_scale(ctx, cp->p, 0)), TN_OK);
        REQUIRE(CHECK_STATUS(tn_cp_certify(cp, 0.5, 1, NULL, &c), TN_OK));
        CHECK(host(c.error)[0] == 0 && host(c.bound)[0] == 0);      /* of a zero output */
        CLOSE_CTX(ctx);
    }
    WORST("error of a certificate against the tensors", worst_error, 1e-12);
    WORST("bound against the next eigenvalue", worst_tight, 1e-10);
    WORST("outputs beyond their bound", worst_bound, 0);
    WORST("mean beyond its bound", worst_mean, 0);
}

TEST(feature_interactions_and_modification)
{
    double worst = 0;
    for (int constant = 0; constant < 2; constant++) {
        tn_ctx    *ctx = ctx_in(NULL, TN_F64, 0);
        uint64_t   seed = 50;
        const int64_t m = 4, n = 5, rows = 30, all = m + constant;
        tn_cp     *cp = random_cp(ctx, &seed, 2, 2, 3, n + constant, constant);
        tn_tensor *d = random_2d(ctx, &seed, m, n), *a = random_2d(ctx, &seed, rows, m);
        tn_tensor *a1 = constant ? tn_append_one(ctx, a) : a;
        tn_tensor *u = tn_reshape(random_2d(ctx, &seed, 1, 2), 1, (const int64_t *)&cp->out);
        tn_tensor *moment = tn_scale(ctx, tn_matmul(ctx, tn_transpose(a1, 0, 1), a1), 1.0 / (double)rows);
        tn_tensor *c = tn_cp_feature_interactions(cp, u, d, moment);
        REQUIRE(c && c->shape[0] == all && c->shape[1] == all);
        tn_tensor *x = tn_matmul(ctx, a, d);                         /* sum_i a_i d_i */
        double    *y = outputs_of(cp, x), *v = host(c), *w = host(u), sum = 0, mean = 0;
        for (int64_t i = 0; i < all * all; i++) sum += v[i];
        for (int64_t i = 0; i < rows; i++) mean += (y[2 * i] * w[0] + y[2 * i + 1] * w[1]) / (double)rows;
        test_raise(&worst, fabs(sum - mean));
        c = tn_cp_feature_interactions(cp, u, tn_transpose(random_2d(ctx, &seed, n, m), 0, 1), NULL);
        CHECK(c != NULL);                                            /* a strided dictionary */
        c = tn_cp_feature_interactions(cp, u, d, NULL);
        double *q = host(tn_cp_interaction(cp, u)), *rows_of = host(d);
        v = host(c);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < m; j++) {
                double direct = 0;
                for (int64_t k = 0; k < n * n; k++)
                    direct += rows_of[i * n + k / n] * q[k / n * (n + constant) + k % n] * rows_of[j * n + k % n];
                test_raise(&worst, fabs(direct - v[i * all + j]));
            }
        CHECK_CTX(ctx);
        CHECK(!tn_cp_feature_interactions(cp, u, random_2d(ctx, &seed, 2, 7), NULL));
        CHECK_ERROR(ctx, TN_ERR_SHAPE, "feature_interactions: d is");
        {                                                            /* |u_l - (W d_i) * u_l| */
            tn_tensor *W = random_2d(ctx, &seed, 3, n), *U = random_2d(ctx, &seed, 3, 6);
            double *M = host(tn_feature_modification(ctx, W, d, U)), *f = host(U);
            double *g = host(tn_affine(ctx, d, W, NULL));
            for (int64_t i = 0; i < m; i++)
                for (int64_t l = 0; l < 6; l++) {
                    double square = 0;
                    for (int64_t k = 0; k < 3; k++) square += pow(f[k * 6 + l] - g[i * 3 + k] * f[k * 6 + l], 2);
                    test_raise(&worst, fabs(sqrt(square) - M[i * 6 + l]));
                }
            CHECK(!tn_feature_modification(ctx, W, W, d));
            CHECK_ERROR(ctx, TN_ERR_SHAPE, "feature_modification: w is [3,5]");
        }
        CLOSE_CTX(ctx);
    }
    WORST("dictionaries and modified features", worst, 1e-13);
}

/* Bases against the eigenvectors of W S W^T, and for independent components against the mixture that was planted. */
TEST(bases_and_correlations_of_features)
{
    double     worst = 0;
    tn_ctx    *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t   seed = 51;
    const int64_t rows = 400, n = 3, h = 4, column[2] = {400, 1};
    tn_tensor *w = random_2d(ctx, &seed, h, n), *x = random_2d(ctx, &seed, rows, n);
    tn_tensor *u = tn_feature_basis(ctx, w, x, 2, false), *z = tn_affine(ctx, x, w, NULL);
    REQUIRE(u && u->shape[0] == h && u->shape[1] == 2);
    double    *v = host(u), *y = host(z), last = HUGE_VAL;
    for (int64_t k = 0; k < 2; k++) {                           /* W X (W X)^T u = s^2 u, s descending */
        double to[4] = {0, 0, 0, 0}, square = 0;
        for (int64_t r = 0; r < rows; r++) {
            double at = 0;
            for (int64_t i = 0; i < h; i++) at += y[r * h + i] * v[i * 2 + k];
            for (int64_t i = 0; i < h; i++) to[i] += at * y[r * h + i];
            square += at * at;
        }
        for (int64_t i = 0; i < h; i++) test_raise(&worst, fabs(to[i] / square - v[i * 2 + k]));
        CHECK(square < last);
        last = square;
    }
    u = tn_feature_basis(ctx, w, x, 0, false);
    CHECK(u && u->shape[1] == h);
    WORST("bases of W X", worst, 1e-12);
    u = tn_feature_basis(ctx, w, x, 3, true);                   /* uniform sources: those of x, so columns of W */
    REQUIRE(u && u->shape[0] == h && u->shape[1] == 3);
    double *c = host(tn_matmul(ctx, tn_transpose(u, 0, 1), w)), *of = host(w), least = 1;
    for (int64_t k = 0; k < 3; k++) {
        double best = 0;
        for (int64_t i = 0; i < n; i++) {
            double square = 0;
            for (int64_t j = 0; j < h; j++) square += of[j * n + i] * of[j * n + i];
            test_raise(&best, fabs(c[k * n + i]) / sqrt(square));
        }
        if (best < least) least = best;
    }
    CHECK(least > 0.98);
    tn_tensor *a = random_2d(ctx, &seed, rows, 5), *b = random_2d(ctx, &seed, rows, 2);
    b = tn_add(ctx, tn_slice(a, 1, 0, 2), tn_scale(ctx, b, 0.5));
    a = tn_copy(ctx, a);
    tn_assign(tn_slice(a, 1, 4, 5), tn_full(ctx, 2, column, 0.1));
    c = host(tn_feature_correlations(ctx, a, b));
    double *p = host(a), *q = host(b);
    worst = 0;
    for (int64_t i = 0; i < 5; i++)
        for (int64_t j = 0; j < 2; j++) {
            double s[5] = {0, 0, 0, 0, 0};
            for (int64_t r = 0; r < rows; r++) {
                double f = p[r * 5 + i], g = q[r * 2 + j];
                s[0] += f; s[1] += g; s[2] += f * f; s[3] += g * g; s[4] += f * g;
            }
            const double N = (double)rows, variances = (N * s[2] - s[0] * s[0]) * (N * s[3] - s[1] * s[1]);
            const double r = (N * s[4] - s[0] * s[1]) / sqrt(variances);
            if (i < 4) test_raise(&worst, fabs(r - c[i * 2 + j]));
            else CHECK_NEAR(c[i * 2 + j], 0, 0);
        }
    WORST("correlations", worst, 1e-12);
    REFUSED(ctx, tn_feature_correlations(ctx, a, w), TN_ERR_SHAPE, "feature_correlations: a is [400,5] and b is [4,3]");
    REFUSED(ctx, tn_feature_basis(ctx, w, a, 1, false), TN_ERR_SHAPE, "feature_basis: w is [4,3] and x is [400,5]");
    REFUSED(ctx, tn_feature_basis(ctx, w, x, -1, false), TN_ERR_ARG, "feature_basis: count is -1");
    REFUSED(ctx, tn_feature_basis(ctx, w, x, 4, true), TN_ERR_ARG, "ica");
    CLOSE_CTX(ctx);
}

/* layer(x) = P (m * features) + p for every kind, with a row of zeros among the inputs. */
TEST(modifiers_make_the_layer)
{
    double worst = 0;
    for (int kind = TN_MLP_BILINEAR; kind <= TN_MLP_GEGLU_TANH + 2; kind++) {
        tn_ctx     *ctx = ctx_in(NULL, TN_F64, 0);
        uint64_t    seed = 60;
        tn_params  *ps = tn_params_create(ctx);
        tn_mlp_desc d = ZERO;
        tn_mlp      mlp;
        d.kind = kind > TN_MLP_GEGLU_TANH ? TN_MLP_BILINEAR : (tn_mlp_kind)kind;
        d.order = kind > TN_MLP_GEGLU_TANH ? (kind == TN_MLP_GEGLU_TANH + 1 ? 1 : 3) : 0;
        d.in = 4; d.hidden = 5; d.out = 3; d.bias = kind % 2; d.out_bias = true;
        CHECK_STATUS(tn_mlp_init(ps, "m", &d, &mlp), TN_OK);
        tn_tensor *x = random_2d(ctx, &seed, 6, 4), *features;
        CHECK_STATUS(tn_assign(tn_slice(x, 0, 2, 3), tn_full(ctx, 2, tn_slice(x, 0, 2, 3)->shape, 0)), TN_OK);
        tn_tensor *m = tn_mlp_modifier(ctx, &mlp, x, &features);
        REQUIRE(m && features && m->shape[1] == 5);
        tn_tensor *y = tn_affine(ctx, tn_mul(ctx, m, features), mlp.p, mlp.pb);
        test_raise(&worst, largest_difference(y, tn_mlp_forward(ctx, &mlp, x)));
        if (tn_mlp_encoders(d.kind) == 1 && !d.bias) {               /* the slope where z is 0 */
            double *v = host(m), want = d.kind == TN_MLP_RELU || d.kind == TN_MLP_RELU2 ? 0 : 0.5;
            for (int i = 10; i < 15; i++) CHECK_NEAR(v[i], want, 0);
        }
        CLOSE_CTX(ctx);
    }
    WORST("layers from their modifiers", worst, 1e-14);
}

static tn_tensor *apply(tn_ctx *ctx, const void *user, tn_tensor *x) { return tn_cp_apply(ctx, (const tn_cp *)user, x); }

/* Third differences: 0 for order 2; for order 3 the sum of T over all orders of the directions, at any x. */
TEST(mixed_differences)
{
    tn_ctx    *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t   seed = 70;
    tn_cp     *two = random_cp(ctx, &seed, 2, 3, 4, 5, false), *three = random_cp(ctx, &seed, 3, 3, 4, 5, false);
    tn_tensor *x = random_2d(ctx, &seed, 2, 5), *d[3], *sum = NULL;
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    double     worst = 0;
    for (int k = 0; k < 3; k++) d[k] = random_2d(ctx, &seed, 1, 5);
    double *zero = host(tn_mixed_difference(ctx, apply, two, x, 3, d));
    for (int i = 0; i < 6; i++) test_raise(&worst, fabs(zero[i]));
    WORST("third difference of a bilinear operator", worst, 1e-14);
    tn_tensor *y = tn_mixed_difference(ctx, apply, three, x, 3, d);
    for (int k = 0; k < 6; k++) {
        tn_tensor *in[3];
        for (int i = 0; i < 3; i++) in[i] = d[order[k][i]];
        tn_tensor *part = tn_cp_apply_each(ctx, three, in);
        sum = sum ? tn_add(ctx, sum, part) : part;
    }
    tn_tensor *twice[2] = {sum, sum};
    sum = tn_concat(ctx, 2, twice, 0);
    WORST("third difference of a cubic operator", largest_difference(y, sum), 1e-13);
    y = tn_mixed_difference(ctx, apply, three, x, 1, d);             /* n = 1: f(x + d) - f(x) */
    sum = tn_sub(ctx, tn_cp_apply(ctx, three, tn_add(ctx, x, d[0])), tn_cp_apply(ctx, three, x));
    CHECK_NEAR(largest_difference(y, sum), 0, 0);
    CHECK_CTX(ctx);
    REFUSED(ctx, tn_mixed_difference(ctx, apply, two, x, 9, d), TN_ERR_ARG, "mixed_difference: n is 9, expected 1 to 8");
    CLOSE_CTX(ctx);
}

/* The same function with its terms permuted, factors in another order, and scales that cancel. */
static tn_cp *disguised(const tn_cp *cp, uint64_t *seed)
{
    const int64_t h = cp->terms, n = cp->in[0];
    double    *p = host(cp->p), *q = doubles(cp->out * h), *f[4], *g[4];
    tn_tensor *ft[4], *pt = tn_tensor_2d(cp->ctx, TN_REAL, cp->out, h);
    for (int k = 0; k < cp->order; k++) { f[k] = host(cp->f[k]); g[k] = doubles(h * n); }
    for (int64_t t = 0; t < h; t++) {
        int64_t from = (t * 5 + 2) % h;                              /* 5 and h have no common factor */
        int     turn = (int)test_random_int(seed, 0, cp->order - 1);
        double  all = 1;
        for (int k = 0; k < cp->order; k++) {
            double scale = (test_random_int(seed, 0, 1) ? 1 : -1) * (0.25 + fabs(test_random_real(seed)) * 3);
            for (int64_t i = 0; i < n; i++) g[k][t * n + i] = scale * f[(k + turn) % cp->order][from * n + i];
            all *= scale;
        }
        for (int64_t o = 0; o < cp->out; o++) q[o * h + t] = p[o * h + from] / all;
    }
    CHECK_STATUS(tn_write(pt, TN_F64, q, cp->out * h), TN_OK);
    for (int k = 0; k < cp->order; k++) {
        ft[k] = tn_tensor_2d(cp->ctx, TN_REAL, h, n);
        CHECK_STATUS(tn_write(ft[k], TN_F64, g[k], h * n), TN_OK);
    }
    tn_cp *to = tn_cp_create(cp->ctx, cp->order, pt, ft, cp->constant ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
    return to;
}

TEST(canonical_forms_are_equal)
{
    double worst = 0, function = 0;
    for (int order = 1; order <= 3; order++) {
        tn_ctx  *ctx = ctx_in(NULL, TN_F64, 0);
        uint64_t seed = 80;
        tn_cp   *a = random_cp(ctx, &seed, order, 3, 7, 5, order == 2), *b = disguised(a, &seed);
        tn_tensor *x = random_2d(ctx, &seed, 4, 5), *f[3];
        tn_cp   *ca = tn_cp_canonical(a), *cb = tn_cp_canonical(b);
        REQUIRE(ca && cb);
        test_raise(&worst, largest_difference(ca->p, cb->p));
        for (int k = 0; k < order; k++) test_raise(&worst, largest_difference(ca->f[k], cb->f[k]));
        test_raise(&function, largest_difference(tn_cp_apply(ctx, a, x), tn_cp_apply(ctx, ca, x)));
        for (int k = 0; k < order; k++) f[k] = tn_full(ctx, 2, a->f[0]->shape, 0);
        tn_cp *zero = tn_cp_create(ctx, order, a->p, f, TN_CP_INPUT_PLAIN);
        tn_cp *cz = tn_cp_canonical(zero);
        REQUIRE(cz != NULL);
        double *p = host(cz->p);
        for (int i = 0; i < 21; i++) CHECK_NEAR(p[i], 0, 0);
        f[0] = tn_full(ctx, 2, a->f[0]->shape, (double)NAN);
        CHECK(!tn_cp_canonical(tn_cp_create(ctx, order, a->p, f, TN_CP_INPUT_PLAIN)));
        CHECK_ERROR(ctx, TN_ERR_NONFINITE, "canonical: the operator has NaN or infinity");
        CLOSE_CTX(ctx);
    }
    WORST("canonical forms", worst, 1e-14);
    WORST("function of a canonical form", function, 1e-13);
}

/* Sizes whose product leaves the range on the way are right; those that do not fit P in the end are refused. */
TEST(canonical_forms_at_any_scale)
{
    static const struct { tn_dtype dtype; double p, w, v; bool fits; } scales[] = {
        {TN_F64, 1e200, 1e-180, 1e-180, true}, {TN_F64, 1e-200, 1e-180, 1e300, true}, {TN_F64, 1, 1e-180, 1e-180, false},
        {TN_F64, 1, 1e180, 1e180, false}, {TN_F32, 1e-20, 1e25, 1e25, true}, {TN_F32, 1, 1e22, 1e22, false},
        {TN_F32, 1e-15, 1e-15, 1e-15, false}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        tn_ctx  *ctx = ctx_in(NULL, scales[i].dtype, 0);
        uint64_t seed = 83;
        tn_cp   *plain = random_cp(ctx, &seed, 2, 2, 3, 4, false);
        tn_tensor *f[2];
        tn_cp_refit_desc d = ZERO;
        d.terms = 3;
        f[0] = tn_scale(ctx, plain->f[0], scales[i].w);
        f[1] = tn_scale(ctx, plain->f[1], scales[i].v);
        tn_cp *cp = tn_cp_create(ctx, 2, tn_scale(ctx, plain->p, scales[i].p), f, TN_CP_INPUT_PLAIN);
        tn_cp *to = tn_cp_canonical(cp);
        CHECK_INT(to != NULL, scales[i].fits);
        if (to) {
            double cosine;
            CHECK_STATUS(tn_cp_cosine(to, plain, &cosine), TN_OK);
            CHECK_NEAR(cosine, 1, scales[i].dtype == TN_F32 ? 1e-6 : 1e-12);
        } else {
            CHECK_ERROR(ctx, TN_ERR_NONFINITE, "canonical: with factors of these lengths the largest element of p is ");
            CHECK(!tn_cp_refit(cp, &d, NULL));
            CHECK_ERROR(ctx, TN_ERR_NONFINITE, "refit: with factors of these lengths the largest element of p is ");
        }
        CLOSE_CTX(ctx);
    }
}

/* Eigenvalues whose squares are below the range of a double. */
TEST(certificates_of_small_operators)
{
    tn_ctx  *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t seed = 84;
    tn_cp   *cp = random_cp(ctx, &seed, 2, 1, 3, 4, false);
    tn_certificate large, c;
    tn_cp   *small = tn_cp_create(ctx, 2, tn_scale(ctx, cp->p, 1e-200), cp->f, TN_CP_INPUT_PLAIN);
    CHECK_STATUS(tn_cp_certify(cp, 0.5, 1, NULL, &large), TN_OK);
    CHECK_STATUS(tn_cp_certify(small, 0.5, 1, NULL, &c), TN_OK);
    REQUIRE(large.cp && c.cp);
    CHECK_INT(c.cp->terms, large.cp->terms);
    double *a = host(large.error);
    double *b = host(c.error);
    CHECK_NEAR(a[0], b[0], 1e-12);
    CHECK(a[0] > 0);
    tn_certificate_destroy(&large);
    tn_certificate_destroy(&c);
    CLOSE_CTX(ctx);
}

/* The cosine of term i of a and term j of b, as symmetric tensors, by tn_cp_cosine of operators of one term. */
static double term_cosine(const tn_cp *a, int64_t i, const tn_cp *b, int64_t j)
{
    tn_cp       *one[2];
    double       c = 0;
    const tn_cp *of[2] = {a, b};
    for (int k = 0; k < 2; k++) {
        int64_t t = k ? j : i;
        tn_tensor *f[2];
        for (int e = 0; e < 2; e++) f[e] = tn_slice(of[k]->f[e], 0, t, t + 1);
        one[k] = tn_cp_create(a->ctx, 2, tn_slice(of[k]->p, 1, t, t + 1), f, TN_CP_INPUT_PLAIN);
    }
    CHECK_STATUS(tn_cp_cosine(one[0], one[1], &c), TN_OK);
    tn_cp_destroy(one[0]);
    tn_cp_destroy(one[1]);
    return c;
}

static double best_sum(const double *c, int n, int row, int used)
{
    double best = -HUGE_VAL;
    if (row == n) return 0;
    for (int j = 0; j < n; j++) {
        double sum = used >> j & 1 ? -HUGE_VAL : c[row * n + j] + best_sum(c, n, row + 1, used | 1 << j);
        if (sum > best) best = sum;
    }
    return best;
}

TEST(alignment_finds_the_units)
{
    double  weights = 0, sums = 0, cosine = 0, function = 0;
    tn_ctx *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t seed = 90;
    for (int round = 0; round < 12; round++) {
        const int64_t h = 1 + round % 6;
        tn_cp *a = random_cp(ctx, &seed, 2, 3, h == 5 ? 6 : h, 5, false);
        tn_cp *b = random_cp(ctx, &seed, 2, 3, a->terms, 5, false);
        tn_cp *same = disguised(a, &seed), *aligned;
        tn_tensor *cosines, *x = random_2d(ctx, &seed, 4, 5);
        double sum = 0;
        REQUIRE(CHECK_STATUS(tn_cp_align(a, same, &aligned, &cosines), TN_OK));
        test_raise(&weights, largest_difference(aligned->p, a->p));
        for (int k = 0; k < 2; k++) test_raise(&weights, largest_difference(aligned->f[k], a->f[k]));
        CHECK_INT(cosines->rank, 1);
        double *v = host(cosines);
        for (int64_t i = 0; i < a->terms; i++) test_raise(&weights, fabs(v[i] - 1));
        tn_tensor_destroy(cosines);
        REQUIRE(CHECK_STATUS(tn_cp_align(a, b, &aligned, &cosines), TN_OK));
        v = host(cosines);
        double *c = doubles(a->terms * a->terms);
        for (int64_t i = 0; i < a->terms; i++) {
            sum += v[i];
            test_raise(&cosine, fabs(v[i] - term_cosine(a, i, aligned, i)));
            for (int64_t j = 0; j < a->terms; j++) c[i * a->terms + j] = term_cosine(a, i, b, j);
        }
        test_raise(&sums, fabs(sum - best_sum(c, (int)a->terms, 0, 0)));
        test_raise(&function, largest_difference(tn_cp_apply(ctx, b, x), tn_cp_apply(ctx, aligned, x)));
        tn_tensor_destroy(cosines);
    }
    WORST("weights after alignment", weights, 1e-13);
    WORST("cosines of pairs", cosine, 1e-13);
    WORST("assignment against all permutations", sums, 1e-13);
    WORST("function after alignment", function, 1e-13);
    CHECK_CTX(ctx);
    {
        tn_cp *a = random_cp(ctx, &seed, 2, 3, 4, 5, false), *b = random_cp(ctx, &seed, 2, 3, 3, 5, false), *c = a;
        FAILS(ctx, tn_cp_align(a, b, &c, NULL), TN_ERR_SHAPE, "align: b has 3 outputs and 3 terms, expected 3 and 4 as a");
        CHECK(!c);
    }
    CLOSE_CTX(ctx);
}

/* Doubled terms are recognised; the error is that of the tensors and falls from sweep to sweep; and for one output and one
   term the optimum is known: sym(w v^T) has one positive and one negative eigenvalue, so that it can take away those two of
   largest magnitude, and no others. */
TEST(refits_are_least_squares)
{
    double worst = 0, doubled = 0, optimum = 0;
    tn_ctx *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t seed = 100;
    for (int round = 0; round < 6; round++) {
        tn_cp     *a = random_cp(ctx, &seed, 2, 3, 7, 6, round % 2), *b = disguised(a, &seed);
        tn_tensor *f[2];
        tn_cp_refit_desc d = ZERO;
        double     error, last = 2;
        d.terms = 7;
        tn_tensor *p[2] = {a->p, b->p};
        for (int k = 0; k < 2; k++) { tn_tensor *g[2] = {a->f[k], b->f[k]}; f[k] = tn_concat(ctx, 2, g, 0); }
        tn_cp *pair = tn_cp_create(ctx, 2, tn_concat(ctx, 2, p, 1), f, a->constant ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
        tn_cp *c = tn_cp_refit(pair, &d, &error);
        REQUIRE(c && c->terms == 7 && c->constant == a->constant);
        CHECK(error < 1e-7);
        test_raise(&doubled, largest_difference(tn_cp_dense_symmetric(c), tn_cp_dense_symmetric(pair)));
        d.terms = 4;
        d.tol = 1e-12;
        for (d.sweeps = 1; d.sweeps <= 64; d.sweeps *= 4) {
            c = tn_cp_refit(a, &d, &error);
            REQUIRE(c && c->terms == 4);
            double *x = host(tn_cp_dense_symmetric(a)), *y = host(tn_cp_dense_symmetric(c));
            double  size = frobenius(x, 108);
            for (int i = 0; i < 108; i++) x[i] -= y[i];
            test_raise(&worst, fabs(frobenius(x, 108) / size - error));
            CHECK(error < last && error < 1 && error > 0.01);
            last = error;
        }
        a = random_cp(ctx, &seed, 2, 1, 7, 6, false);
        d.terms = 1;
        d.sweeps = 2000;
        c = tn_cp_refit(a, &d, &error);
        tn_eigenpairs e;
        CHECK_STATUS(tn_cp_eigen_all(a, 0, &e), TN_OK);
        double *l = host(e.values), high = 0, low = 0, all = 0;
        for (int64_t i = 0; i < e.count; i++) {
            all += l[i] * l[i];
            if (l[i] > high) high = l[i];
            if (l[i] < low) low = l[i];
        }
        test_raise(&optimum, fabs(error - sqrt((all - high * high - low * low) / all)));
        tn_eigenpairs_destroy(&e);
    }
    WORST("doubled terms", doubled, 1e-7);
    WORST("error of a refit against the tensors", worst, 1e-10);
    WORST("one term against the optimum", optimum, 1e-6);
    CHECK_CTX(ctx);
    {
        tn_cp_refit_desc d = ZERO;
        tn_cp *a = random_cp(ctx, &seed, 2, 3, 3, 5, false);
        double error;
        d.terms = 3;
        a = tn_cp_refit(tn_cp_fold_out(a, tn_full(ctx, 2, a->p->shape, 0), NULL), &d, &error);      /* of zeros */
        CHECK(a && a->terms == 0 && error == 0);
        d.sparsity = 0.1;
        a = tn_cp_refit(a, &d, &error);
        CHECK(a && a->terms == 0 && error == 0);
        d.terms = 0;
        a = random_cp(ctx, &seed, 2, 3, 4, 5, false);
        REFUSED(ctx, tn_cp_refit(a, &d, NULL), TN_ERR_ARG, "refit: terms is 0, expected at least 1");
    }
    CLOSE_CTX(ctx);
}

/* The means over the terms of a of their cosines with those of a fit to b, and the least of them; *zeros: share of the numbers
   of its encoders. */
static double terms_found(const tn_cp *a, const tn_cp *b, const tn_cp_refit_desc *d, double *least, double *error, double *zeros)
{
    tn_tensor *cosines;
    tn_cp     *aligned, *c = tn_cp_refit(b, d, error);
    double     sum = 0;
    *least = *zeros = 0;
    if (!CHECK(c && c->terms == a->terms) || !CHECK_STATUS(tn_cp_align(a, c, &aligned, &cosines), TN_OK)) return 0;
    double *v = host(cosines);
    *least = 1;
    for (int64_t i = 0; i < a->terms; i++) {
        sum += v[i] / (double)a->terms;
        if (v[i] < *least) *least = v[i];
    }
    for (int k = 0; k < 2; k++) {
        double *f = host(c->f[k]);
        for (int64_t i = 0; i < a->terms * a->in[0]; i++) *zeros += (f[i] == 0) / (2.0 * (double)(a->terms * a->in[0]));
    }
    tn_tensor_destroy(cosines);
    return sum;
}

/* Planted terms with three numbers in each row of an encoder, given to the fit as eigenpairs, which are none of them: the
   function alone does not determine the terms, and only the sparse fit finds them. */
TEST(sparse_terms_are_found)
{
    enum { N = 16, H = 12, OUT = 3, FILLED = 3 };
    tn_ctx  *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t seed = 92;
    for (int round = 0; round < 3; round++) {
        double           f[2][H * N] = {{0}}, error[2], mean[2], least[2], zeros[2];
        int64_t          shape[2] = {H, N};
        tn_tensor       *in[2];
        tn_eigenpairs    e;
        tn_cp_refit_desc d = ZERO;
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < H; i++)
                for (int left = FILLED; left > 0; ) {
                    double *x = &f[k][i * N + test_random_int(&seed, 0, N - 1)];
                    if (*x != 0) continue;
                    *x = (test_random_real(&seed) < 0 ? -1 : 1) * (1 + 0.5 * test_random_real(&seed));
                    left--;
                }
            in[k] = tn_tensor_from(ctx, 2, shape, TN_F64, f[k]);
        }
        tn_cp *planted = tn_cp_create(ctx, 2, random_2d(ctx, &seed, OUT, H), in, TN_CP_INPUT_PLAIN);
        REQUIRE(CHECK_STATUS(tn_cp_eigen_all(planted, 0, &e), TN_OK));
        tn_cp *given = tn_cp_from_eigen(ctx, &e, N);
        d.terms = H;
        d.sweeps = 500;
        d.tol = 1e-9;
        d.starts = 20;
        for (int k = 0; k < 2; k++) {
            d.sparsity = k ? 0.004 : 0;
            mean[k] = terms_found(planted, given, &d, &least[k], &error[k], &zeros[k]);
        }
        CHECK(mean[0] < 0.7 && mean[1] > 0.99 && least[1] > 0.9);
        CHECK_NEAR(zeros[1], 1 - (double)FILLED / N, 0.02);
        CHECK(error[1] > 0 && error[1] < 0.02);
        tn_eigenpairs_destroy(&e);
        if (round > 0) continue;
        d.sparsity = -1;
        REFUSED(ctx, tn_cp_refit(given, &d, NULL), TN_ERR_ARG, "refit: tol is 1e-09 and sparsity -1, expected 0 or more");
        d.sparsity = 1;
        d.starts = -2;
        REFUSED(ctx, tn_cp_refit(given, &d, NULL), TN_ERR_ARG, "refit: starts is -2");
    }
    CLOSE_CTX(ctx);
}

/* An operator whose first fit is exact, of as many terms as it has, becomes sparse as well: groups of three terms share v, so that
   any mix of their w is the same function. What was planted is sparse, what is given is such a mix. */
TEST(exact_fits_become_sparse)
{
    enum { N = 16, H = 12, OUT = 3, FILLED = 3, GROUP = 3 };
    tn_ctx          *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t         seed = 17;
    double           f[2][H * N] = {{0}}, mixed[H * N] = {0}, p[OUT * H], planted_p[OUT * H] = {0}, error, least, zeros;
    int64_t          shape[2] = {H, N}, outs[2] = {OUT, H};
    tn_cp_refit_desc d = ZERO;
    for (int i = 0; i < 2 * H; i++)
        for (int left = FILLED; left > 0; ) {
            double *x = &f[i / H][i % H * N + test_random_int(&seed, 0, N - 1)];
            if (*x != 0) continue;
            *x = (test_random_real(&seed) < 0 ? -1 : 1) * (1 + 0.5 * test_random_real(&seed));
            left--;
        }
    for (int i = 0; i < H; i++) memcpy(f[1] + i * N, f[1] + i / GROUP * GROUP * N, N * sizeof *f[1]);
    for (int i = 0; i < OUT * H; i++) p[i] = test_random_real(&seed);
    for (int i = 0; i < H; i++)
        for (int k = i / GROUP * GROUP; k < i / GROUP * GROUP + GROUP; k++) {
            const double m = test_random_real(&seed) + (i == k);
            for (int j = 0; j < N; j++) mixed[i * N + j] += m * f[0][k * N + j];
            for (int o = 0; o < OUT; o++) planted_p[o * H + k] += p[o * H + i] * m;
        }
    tn_tensor *in[2], *other[2];
    in[0] = tn_tensor_from(ctx, 2, shape, TN_F64, f[0]);
    in[1] = other[1] = tn_tensor_from(ctx, 2, shape, TN_F64, f[1]);
    other[0] = tn_tensor_from(ctx, 2, shape, TN_F64, mixed);
    tn_cp *planted = tn_cp_create(ctx, 2, tn_tensor_from(ctx, 2, outs, TN_F64, planted_p), in, TN_CP_INPUT_PLAIN);
    tn_cp *given = tn_cp_create(ctx, 2, tn_tensor_from(ctx, 2, outs, TN_F64, p), other, TN_CP_INPUT_PLAIN);
    d.terms = H;
    d.sweeps = 500;
    d.tol = 1e-9;
    d.starts = 1;
    d.sparsity = 0.004;
    for (int k = 0; k < 2; k++) {
        const double mean = terms_found(planted, k ? given : planted, &d, &least, &error, &zeros);
        CHECK(mean > (k ? 0.65 : 0.9) && zeros > 0.75 && error > 0 && error < 0.03);
    }
    CLOSE_CTX(ctx);
}

/* Without a number of starts there are eight: where the eighth is the best, seven find less. */
TEST(eight_starts_by_default)
{
    enum { N = 5, H = 6, OUT = 2 };
    tn_ctx          *ctx = ctx_in(NULL, TN_F64, 0);
    uint64_t         seed = 5;
    tn_tensor       *in[2];
    tn_cp_refit_desc d = ZERO;
    int              seen = 0;
    for (int k = 0; k < 2; k++) in[k] = random_2d(ctx, &seed, H, N);
    tn_cp *cp = tn_cp_create(ctx, 2, random_2d(ctx, &seed, OUT, H), in, TN_CP_INPUT_PLAIN);
    d.terms = 2;
    d.sparsity = 0.01;
    for (d.seed = 0; d.seed < 60 && seen == 0; d.seed++) {
        double error[3];
        for (int k = 0; k < 3; k++) {
            d.starts = k < 2 ? 7 + k : 0;
            tn_cp_destroy(tn_cp_refit(cp, &d, &error[k]));
        }
        seen += error[0] != error[1];
        CHECK(error[2] == error[1]);
    }
    CHECK(seen > 0);
    CLOSE_CTX(ctx);
}

#ifdef TN_NO_TRAINING
TEST_MAIN(topk_is_a_stable_sort, topk_refuses, eye, tables, views_of_layers, patterns_and_heads_make_the_layer,
          heads_make_the_pattern, products_refuse, unfoldings_of_mode_products, signal_against_its_nulls,
          certificates_hold, feature_interactions_and_modification,
          bases_and_correlations_of_features, modifiers_make_the_layer, mixed_differences,
          canonical_forms_are_equal, canonical_forms_at_any_scale, certificates_of_small_operators,
          alignment_finds_the_units, refits_are_least_squares, eight_starts_by_default, sparse_terms_are_found,
          exact_fits_become_sparse)
#else
TEST_MAIN(topk_is_a_stable_sort, topk_has_a_gradient, topk_refuses, eye, tables, views_of_layers,
          patterns_and_heads_make_the_layer, heads_make_the_pattern, products_refuse, unfoldings_of_mode_products,
          signal_against_its_nulls, certificates_hold, feature_interactions_and_modification,
          bases_and_correlations_of_features, modifiers_make_the_layer,
          mixed_differences, canonical_forms_are_equal, canonical_forms_at_any_scale, certificates_of_small_operators,
          alignment_finds_the_units, refits_are_least_squares, eight_starts_by_default, sparse_terms_are_found,
          exact_fits_become_sparse)
#endif
