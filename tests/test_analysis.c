/* test_analysis.c: what analyses of weights are made of (top-k, tables, views of layers, patterns), and the analyses of
   operators themselves. */
#include "test.h"

static tn_ctx *open_ctx(tn_dtype dtype)
{
    tn_ctx *ctx = NULL;
    tn_desc d;
    memset(&d, 0, sizeof d);
    d.dtype = dtype;
    d.seed = 5;
    CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK);
    return ctx;
}

static double *doubles(int64_t n) { return (double *)calloc((size_t)n + 1, sizeof(double)); }

static double *numbers_of(const tn_tensor *t)
{
    double *v = doubles(t ? tn_tensor_count(t) : 0);
    CHECK(t && tn_read(t, TN_F64, v, tn_tensor_count(t)) == TN_OK);
    return v;
}

static tn_tensor *random_tensor(tn_ctx *ctx, uint64_t *seed, int rank, const int64_t *shape)
{
    tn_tensor *t = tn_tensor_nd(ctx, TN_REAL, rank, shape);
    int64_t    n = tn_tensor_count(t);
    double    *v = doubles(n);
    for (int64_t i = 0; i < n; i++) v[i] = (double)(float)test_random_real(seed);
    CHECK_STATUS(tn_write(t, TN_F64, v, n), TN_OK);
    free(v);
    return t;
}

static inline tn_tensor *random_2d(tn_ctx *ctx, uint64_t *seed, int64_t n, int64_t m)
{
    int64_t shape[2];
    shape[0] = n; shape[1] = m;
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
        tn_ctx  *ctx = open_ctx(dtype ? TN_F64 : TN_F32);
        uint64_t seed = 3;
        for (int round = 0; round < 7 * 3 * 3; round++) {
            const int64_t *shape = shapes[round % 7], n = shape[1];
            const tn_order order = (tn_order)(round / 7 % 3);
            int64_t count = shape[0] * n * shape[2], k = round < 21 ? n : round < 42 ? n / 2 : n > 0;
            double *v = doubles(count);
            tn_tensor *t = tn_tensor_nd(ctx, TN_REAL, 3, shape), *ids, *values;
            for (int64_t i = 0; i < count; i++) {                    /* full of ties, with NaN and both zeros */
                v[i] = (double)test_random_int(&seed, -3, 3);
                if (v[i] == 3) v[i] = (double)NAN;
                if (v[i] == 0 && i % 2) v[i] = -0.0;
            }
            CHECK_STATUS(tn_write(t, TN_F64, v, count), TN_OK);
            values = k == n ? tn_sort(ctx, t, 1, order, &ids) : tn_topk(ctx, t, -2, k, order, &ids);
            CHECK_CTX(ctx);
            REQUIRE(values && ids && values->shape[1] == k && ids->dtype == TN_I32);
            double  *got = numbers_of(values), *at = numbers_of(ids);
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
            free(v); free(got); free(at);
            tn_ctx_reset(ctx);
        }
        tn_ctx_destroy(ctx);
    }
}

#ifndef TN_NO_TRAINING
TEST(topk_has_a_gradient)
{
    tn_ctx    *ctx = open_ctx(TN_F64);
    double     v[6] = {1, -5, 2, 4, 0, 3}, want[6] = {2, -10, 4, 8, 0, 0};
    tn_tensor *t = tn_tensor_2d(ctx, TN_REAL, 3, 2), *y;             /* columns 1 2 0 and -5 4 3 */
    CHECK_STATUS(tn_write(t, TN_F64, v, 6), TN_OK);
    CHECK_STATUS(tn_watch(t), TN_OK);
    tn_record(ctx);
    y = tn_topk(ctx, tn_transpose(t, 0, 1), 1, 2, TN_ORDER_MAGNITUDE, NULL);
    CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, y))), TN_OK);
    double *g = numbers_of(t->grad);
    for (int i = 0; i < 6; i++) CHECK_NEAR(g[i], want[i], 0);
    free(g);
    CHECK_CTX(ctx);
    tn_ctx_destroy(ctx);
}
#endif

TEST(topk_refuses)
{
    tn_ctx    *ctx = open_ctx(TN_F32);
    tn_tensor *t = tn_eye(ctx, 3), *ids = t;
    CHECK(!tn_topk(ctx, t, 0, 4, TN_ORDER_LARGEST, &ids) && !ids);
    CHECK_ERROR(ctx, TN_ERR_ARG, "topk: k is 4, expected 0 to 3, the extent of axis 0");
    CHECK(!tn_topk(ctx, t, 0, -1, TN_ORDER_LARGEST, NULL));
    CHECK_ERROR(ctx, TN_ERR_ARG, "topk: k is -1, expected 0 or more");
    CHECK(!tn_sort(ctx, t, 2, TN_ORDER_LARGEST, NULL));
    CHECK_ERROR(ctx, TN_ERR_ARG, "sort: axis is 2");
    CHECK(!tn_sort(ctx, t, 0, (tn_order)7, NULL));
    CHECK_ERROR(ctx, TN_ERR_ARG, "sort: order is 7");
    CHECK(!tn_topk(ctx, NULL, 0, 1, TN_ORDER_LARGEST, NULL) && !tn_sort(ctx, NULL, 0, TN_ORDER_LARGEST, NULL));
    tn_ctx_clear_error(ctx);
    tn_ctx_destroy(ctx);
}

TEST(eye)
{
    tn_ctx *ctx = open_ctx(TN_F32);
    for (int64_t n = 0; n < 4; n++) {
        tn_tensor *t = tn_eye(ctx, n);
        double    *v = numbers_of(t);
        CHECK(t && t->rank == 2 && t->shape[0] == n && t->shape[1] == n);
        for (int64_t i = 0; i < n * n; i++) CHECK_NEAR(v[i], i / n == i % n, 0);
        free(v);
    }
    CHECK(!tn_eye(ctx, -1));
    tn_ctx_clear_error(ctx);
    tn_ctx_destroy(ctx);
}

/* ---- tables ---------------------------------------------------------------------------------------------- */

static void check_table(const tn_tensor *t, const tn_table_desc *d, const char *want)
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
    tn_ctx       *ctx = open_ctx(TN_F64);
    const double  v[6] = {1, -0.25, 1e-9, 12.5, -3, 1.0 / 3};
    const char   *rows[2] = {"ab", "\xc3\xa9\n"}, *columns[3] = {"x", "long name", "z"};
    tn_tensor    *t = tn_tensor_2d(ctx, TN_REAL, 2, 3);
    tn_table_desc d;
    char          text[8];
    const int64_t six = 6;
    CHECK_STATUS(tn_write(t, TN_F64, v, 6), TN_OK);
    memset(&d, 0, sizeof d);
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
    CHECK_INT(tn_tensor_table(tn_tensor_3d(ctx, TN_REAL, 1, 1, 1), NULL, text, sizeof text), -1);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "table: t is [1,1,1], expected rank 1 or 2");
    CHECK_INT(tn_tensor_table(NULL, NULL, text, sizeof text), -1);
    tn_ctx_destroy(ctx);
}

/* ---- views of layers, and patterns ----------------------------------------------------------------------- */

TEST(views_of_layers)
{
    tn_ctx       *ctx = open_ctx(TN_F64);
    tn_params    *ps = tn_params_create(ctx);
    tn_mlp_desc   md;
    tn_mlp        mlp;
    memset(&md, 0, sizeof md);
    md.in = 3; md.hidden = 4; md.order = 3;
    CHECK_STATUS(tn_mlp_init(ps, "mlp", &md, &mlp), TN_OK);
    for (int64_t e = 0; e < 3; e++) {
        tn_tensor *w = tn_mlp_encoder(&mlp, e);
        REQUIRE(w && w->rank == 2 && w->shape[0] == 4 && w->shape[1] == 3);
        CHECK(w->data == (char *)mlp.w->data + e * 12 * 8 && tn_tensor_contiguous(w));       /* a view, no copy */
    }
    CHECK(!tn_mlp_encoder(&mlp, 3));
    CHECK_ERROR(ctx, TN_ERR_ARG, "mlp_encoder: e is 3, expected 0 to 2");
    CHECK(!tn_mlp_encoder(NULL, 0) && !tn_attention_head(NULL, 0, TN_HEAD_V));
    tn_ctx_destroy(ctx);
}

/* For each kind: the layer's output from its patterns and the views of its heads, sum_h P_h x V_h^T O_h^T. */
TEST(patterns_and_heads_make_the_layer)
{
    for (int kind = TN_ATTENTION_SOFTMAX; kind <= TN_ATTENTION_DIFFERENTIAL_PLAIN; kind++) {
        tn_ctx   *ctx = open_ctx(TN_F64);
        uint64_t  seed = 7;
        int64_t   shape[3] = {2, 5, 6};
        double    worst = 0;
        tn_params *ps = tn_params_create(ctx);
        tn_attention_desc d;
        tn_attention      layer;
        memset(&d, 0, sizeof d);
        d.kind = (tn_attention_kind)kind;
        d.dim = 6; d.heads = 3; d.d_qk = 4; d.d_v = 2; d.out = 7; d.window = kind == TN_ATTENTION_SQUARED ? 3 : 0;
        CHECK_STATUS(tn_attention_init(ps, "a", &d, &layer), TN_OK);
        tn_tensor *x = random_tensor(ctx, &seed, 3, shape), *p = tn_attention_pattern(ctx, &layer, x);
        REQUIRE(p && p->rank == 4 && p->shape[0] == 2 && p->shape[1] == 3 && p->shape[2] == 5 && p->shape[3] == 5);
        for (int64_t b = 0; b < 2; b++) {
            tn_tensor *y = NULL, *xb = tn_reshape_2d(tn_slice(x, 0, b, b + 1), 5, 6);
            double    *want, *got;
            for (int64_t h = 0; h < 3; h++) {
                tn_tensor *ph = tn_reshape_2d(tn_slice(tn_slice(p, 0, b, b + 1), 1, h, h + 1), 5, 5);
                tn_tensor *v = tn_attention_head(&layer, h, TN_HEAD_V), *o = tn_attention_head(&layer, h, TN_HEAD_O);
                tn_tensor *head = tn_affine(ctx, tn_matmul(ctx, ph, xb), v, NULL);
                if (kind == TN_ATTENTION_DIFFERENTIAL)
                    head = tn_scale(ctx, tn_rmsnorm(ctx, head, NULL, 1e-5), 1 - layer.desc.lambda_init);
                head = tn_affine(ctx, head, o, NULL);
                y = y ? tn_add(ctx, y, head) : head;
            }
            want = numbers_of(tn_slice(tn_attention_forward(ctx, &layer, x, NULL), 0, b, b + 1));
            got = numbers_of(y);
            for (int i = 0; i < 35; i++) test_raise(&worst, fabs(want[i] - got[i]));
            free(want); free(got);
        }
        WORST(tn_attention_kind_name(d.kind), worst, 1e-14);
        CHECK_CTX(ctx);
        tn_ctx_destroy(ctx);
    }
}

/* Scores from Q and K of the heads, by hand: squared and bilinear patterns without positions. */
TEST(heads_make_the_pattern)
{
    for (int kind = TN_ATTENTION_SQUARED; kind <= TN_ATTENTION_BILINEAR; kind++) {
        tn_ctx   *ctx = open_ctx(TN_F64);
        uint64_t  seed = 8;
        int64_t   shape[3] = {1, 4, 5};
        double    worst = 0;
        tn_params *ps = tn_params_create(ctx);
        tn_attention_desc d;
        tn_attention      layer;
        memset(&d, 0, sizeof d);
        d.kind = (tn_attention_kind)kind;
        d.dim = 5; d.heads = 2; d.d_qk = 3; d.d_v = 2; d.no_rope = true; d.bidirectional = true; d.row = TN_ROW_SCALE_NONE;
        CHECK_STATUS(tn_attention_init(ps, "a", &d, &layer), TN_OK);
        tn_tensor *x = random_tensor(ctx, &seed, 3, shape), *x2 = tn_reshape_2d(x, 4, 5);
        tn_tensor *p = tn_attention_pattern(ctx, &layer, x);
        double    *got = numbers_of(p);
        for (int64_t h = 0; h < 2; h++) {
            double *s[2];
            for (int set = 0; set < 2; set++) {
                bool two = set == 1 && kind == TN_ATTENTION_BILINEAR;
                tn_tensor *q = tn_attention_head(&layer, h, two ? TN_HEAD_Q2 : TN_HEAD_Q1);
                tn_tensor *k = tn_attention_head(&layer, h, two ? TN_HEAD_K2 : TN_HEAD_K1);
                q = tn_affine(ctx, x2, q, NULL);
                s[set] = numbers_of(tn_matmul(ctx, q, tn_transpose(tn_affine(ctx, x2, k, NULL), 0, 1)));
            }
            for (int i = 0; i < 16; i++) test_raise(&worst, fabs(got[h * 16 + i] - s[0][i] * s[1][i] / 9));
            free(s[0]); free(s[1]);
        }
        free(got);
        WORST(tn_attention_kind_name(d.kind), worst, 1e-15);
        CHECK(!tn_attention_head(&layer, 2, TN_HEAD_Q1));
        CHECK_ERROR(ctx, TN_ERR_ARG, "attention_head: h is 2, expected 0 to 1");
        CHECK((tn_attention_head(&layer, 0, TN_HEAD_K2) != NULL) == (kind == TN_ATTENTION_BILINEAR));
        if (kind == TN_ATTENTION_SQUARED) CHECK_ERROR(ctx, TN_ERR_ARG, "attention_head: part is 3");
        tn_ctx_destroy(ctx);
    }
}

/* ---- small products: values and gradients are in cases.h -------------------------------------------------- */

TEST(products_refuse)
{
    tn_ctx       *ctx = open_ctx(TN_F32);
    tn_tensor    *a = tn_tensor_2d(ctx, TN_REAL, 2, 3), *b = tn_tensor_2d(ctx, TN_REAL, 4, 5);
    const int64_t shape[3] = {2, 3, 4}, eight[8] = {1, 1, 1, 1, 1, 1, 1, 3};
    tn_tensor    *c = tn_tensor_3d(ctx, TN_REAL, 1, 1, 3), *deep = tn_full(ctx, 8, eight, 1);
    CHECK(!tn_contract_axes(ctx, a, 0, b, 1));
    CHECK_ERROR(ctx, TN_ERR_ARG, "contract_axes: j is 0, expected an axis of [2,3], counted from 1");
    CHECK(!tn_contract_axes(ctx, a, 2, b, 3));
    CHECK_ERROR(ctx, TN_ERR_ARG, "contract_axes: k is 3, expected an axis of [4,5], counted from 1");
    CHECK(!tn_contract_axes(ctx, a, 2, b, 1));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "contract_axes: axis 2 of u [2,3] and axis 1 of v [4,5] differ");
    CHECK(!tn_contract_axes(ctx, c, 3, deep, 8));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "has rank 9, expected at most 8");
    CHECK(!tn_khatri_rao(ctx, a, b));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "khatri_rao: a is [2,3] but b is [4,5], expected matrices with equal columns");
    CHECK(!tn_khatri_rao_rows(ctx, a, b));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "khatri_rao_rows: a is [2,3] but b is [4,5], expected matrices with equal rows");
    CHECK(!tn_kronecker(ctx, a, c));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "kronecker: a is [2,3] but b is [1,1,3], expected equal ranks of at most 4");
    CHECK(!tn_mode_product(ctx, c, 1, a));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "mode_product: a is [2,3], expected [m,1] for axis 1 of x [1,1,3]");
    CHECK(!tn_unfold(ctx, a, 2));
    CHECK_ERROR(ctx, TN_ERR_ARG, "unfold: axis is 2");
    CHECK(!tn_fold(ctx, a, 1, 3, shape));
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "fold: m is [2,3], expected the unfolding of [2,3,4] by axis 1");
    CHECK(!tn_fold(ctx, a, 3, 3, shape));
    CHECK_ERROR(ctx, TN_ERR_ARG, "fold: axis is 3");
    tn_ctx_destroy(ctx);
}

#ifdef TN_NO_TRAINING
TEST_MAIN(topk_is_a_stable_sort, topk_refuses, eye, tables, views_of_layers, patterns_and_heads_make_the_layer,
          heads_make_the_pattern, products_refuse)
#else
TEST_MAIN(topk_is_a_stable_sort, topk_has_a_gradient, topk_refuses, eye, tables, views_of_layers,
          patterns_and_heads_make_the_layer, heads_make_the_pattern, products_refuse)
#endif
