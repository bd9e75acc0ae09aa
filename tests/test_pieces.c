/* Gradients that are written once: the first writer overwrites what an update left as zeros, all others add; and the gradient of
   cross-entropy, which is made with the loss. */
#include "kit.h"

enum { R = 5, C = 7, N = R * C };

static tn_param *param_of(tn_params *ps, const char *name, int64_t n, int64_t m, const double *values)
{
    tn_init init = ZERO;
    int64_t shape[2] = {n, m};
    tn_param *p = tn_params_add(ps, name, 2, shape, init);
    CHECK(p && tn_write(p->value, TN_F64, values, n * m) == TN_OK);
    return p;
}

static void random_values(uint64_t *seed, double *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) v[i] = 3 * test_random_real(seed);
}

/* Largest |g[i] - factor want[i]| */
static double off(const tn_tensor *g, const double *want, double factor, int64_t n)
{
    double v[4 * N], worst = 0;
    if (!g || !CHECK(n <= 4 * N) || !CHECK_STATUS(tn_read(g, TN_F64, v, n), TN_OK)) return HUGE_VAL;
    for (int64_t i = 0; i < n; i++) test_raise(&worst, fabs(v[i] - factor * want[i]));
    return worst;
}

static const tn_backend *backend_of(int which) { return which ? tn_reference_backend() : tn_cpu_backend(); }

/* d/dx of sum x^2 is 2 x: twice, after a step, after an own number, by a whole and by a part. */
TEST(first_writer_overwrites)
{
    for (int which = 0; which < 2; which++) {
        tn_ctx    *ctx = ctx_on(backend_of(which), TN_F64, TN_SIMD_AUTO, 0);
        tn_params *ps = tn_params_create(ctx);
        tn_optim_desc d = ZERO;
        uint64_t   seed = 11;
        double     x[N], start[N], zero[N] = {0}, half[N];
        d.kind = TN_OPTIM_SGD;
        d.lr = 1e-3;
        tn_optim *o = tn_optim_create(ps, &d);
        random_values(&seed, x, N);
        tn_param *p = param_of(ps, "x", R, C, x);
        for (int round = 0; round < 3; round++) {
            CHECK_STATUS(tn_read(p->value, TN_F64, x, N), TN_OK);
            for (int i = 1; i <= 3; i++) {                             /* the second and the third add */
                tn_ctx_reset(ctx);
                tn_record(ctx);
                tn_tensor *v = i == 2 ? tn_reshape_2d(p->value, C, R) : p->value;
                CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, v, v))), TN_OK);
                CHECK_NEAR(off(p->value->grad, x, 2 * i, N), 0, 1e-13);
            }
            if (round == 1) CHECK_STATUS(tn_params_zero_grad(ps), TN_OK);
            else CHECK_STATUS(tn_optim_step(o), TN_OK);
            CHECK_NEAR(off(p->value->grad, zero, 1, N), 0, 0);
        }
        CHECK_STATUS(tn_read(p->value, TN_F64, x, N), TN_OK);
        random_values(&seed, start, N);                            /* a gradient of one's own: added to */
        CHECK_STATUS(tn_write(p->value->grad, TN_F64, start, N), TN_OK);
        tn_ctx_reset(ctx);
        tn_record(ctx);
        CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, p->value, p->value))), TN_OK);
        for (int i = 0; i < N; i++) start[i] += 2 * x[i];
        CHECK_NEAR(off(p->value->grad, start, 1, N), 0, 1e-13);
        CHECK_STATUS(tn_params_zero_grad(ps), TN_OK);              /* the first writer owns rows 1 and 2, the next all */
        for (int round = 0; round < 2; round++) {
            tn_ctx_reset(ctx);
            tn_record(ctx);
            tn_tensor *v = round == 0 ? tn_slice(p->value, 0, 1, 3) : p->value;
            CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, v, v))), TN_OK);
            for (int i = 0; i < N; i++) half[i] = (i / C == 1 || i / C == 2 ? 2 : 0) * x[i] + (round == 1 ? 2 * x[i] : 0);
            CHECK_NEAR(off(p->value->grad, half, 1, N), 0, 1e-13);
        }
        CLOSE_CTX(ctx);
    }
}

/* Every op that writes a parameter's gradient, from zeros and from what is there. */
TEST(writers_add)
{
    for (int which = 0; which < 2; which++) {
        tn_ctx       *ctx = ctx_on(backend_of(which), TN_F64, TN_SIMD_AUTO, 0);
        tn_params    *ps = tn_params_create(ctx);
        tn_embedding  table;
        tn_norm       norm;
        tn_linear     fc;
        tn_embedding_desc td = ZERO;
        tn_norm_desc  nd = ZERO;
        tn_linear_desc fd = ZERO;
        const int32_t ids[6] = {3, 1, 3, 0, 3, 2}, labels[6] = {0, 2, 1, 1, 0, 2};
        double        once[4][4 * N];
        int64_t       six = 6;
        fd.bias = true;
        td.count = 5; td.dim = C;
        nd.dim = C;
        fd.in = C; fd.out = 3;
        CHECK_STATUS(tn_embedding_init(ps, "table", &td, &table), TN_OK);
        CHECK_STATUS(tn_norm_init(ps, "norm", &nd, &norm), TN_OK);
        CHECK_STATUS(tn_linear_init(ps, "fc", &fd, &fc), TN_OK);
        for (int round = 1; round <= 4; round++) {
            if (round == 3) CHECK_STATUS(tn_params_zero_grad(ps), TN_OK);
            tn_ctx_reset(ctx);
            tn_tensor *x = tn_tensor_nd(ctx, TN_I32, 1, &six);
            tn_tensor *y = tn_tensor_nd(ctx, TN_I32, 1, &six);
            CHECK(tn_write(x, TN_I32, ids, six) == TN_OK && tn_write(y, TN_I32, labels, six) == TN_OK);
            tn_record(ctx);
            x = tn_linear_forward(ctx, &fc, tn_norm_forward(ctx, &norm, tn_embedding_forward(ctx, &table, x)));
            CHECK_STATUS(tn_backward(ctx, tn_cross_entropy(ctx, x, y)), TN_OK);
            for (int64_t i = 0; i < tn_params_count(ps); i++) {
                const tn_tensor *p = tn_params_at(ps, i)->value;
                int64_t n = tn_tensor_count(p);
                if (round == 1) CHECK_STATUS(tn_read(p->grad, TN_F64, once[i], n), TN_OK);
                else CHECK_NEAR(off(p->grad, once[i], round == 3 ? 1 : 2, n), 0, 1e-14);
            }
        }
        CHECK_INT(tn_params_count(ps), 4);
        CLOSE_CTX(ctx);
    }
}

/* dz = (softmax - onehot)/R times what the loss counts for: as the loss itself, scaled, twice, with a second reader of z, where z is a
   parameter, and through a view. */
TEST(cross_entropy_counts)
{
    for (int which = 0; which < 2; which++) {
        tn_ctx    *ctx = ctx_on(backend_of(which), TN_F64, TN_SIMD_AUTO, 0);
        tn_params *ps = tn_params_create(ctx);
        uint64_t   seed = 12;
        double     z[N], want[N];
        int32_t    label[R];
        int64_t    rows = R;
        random_values(&seed, z, N);
        tn_param *p = param_of(ps, "z", R, C, z);
        for (int64_t r = 0; r < R; r++) {
            double sum = 0;
            label[r] = (int32_t)(r * 3 % C);
            for (int64_t j = 0; j < C; j++) sum += exp(z[r * C + j]);
            for (int64_t j = 0; j < C; j++) want[r * C + j] = (exp(z[r * C + j]) / sum - (j == label[r])) / (int)R;
        }
        for (int way = 0; way < 7; way++) {
            double factor = 1, other = 0, both[N];
            tn_ctx_reset(ctx);
            CHECK_STATUS(tn_params_zero_grad(ps), TN_OK);
            tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, R, C);
            tn_tensor *y = tn_tensor_nd(ctx, TN_I32, 1, &rows);
            CHECK(tn_write(x, TN_F64, z, N) == TN_OK && tn_write(y, TN_I32, label, R) == TN_OK && tn_watch(x) == TN_OK);
            tn_record(ctx);
            tn_tensor *one = way == 4 ? p->value : way == 5 ? tn_slice(x, 0, 0, R) : x;
            tn_tensor *loss = tn_cross_entropy(ctx, one, y);
            if (way == 1) { loss = tn_scale(ctx, loss, -2.5); factor = -2.5; }
            if (way == 2) { loss = tn_add(ctx, loss, loss); factor = 2; }
            if (way == 3) { loss = tn_add(ctx, loss, tn_sum(ctx, x)); other = 1; }
            if (way == 6) { tn_tensor *first = tn_cross_entropy(ctx, x, y); loss = tn_add(ctx, first, loss); factor = 2; }
            CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
            for (int64_t j = 0; j < N; j++) both[j] = factor * want[j] + other;
            CHECK_NEAR(off(way == 4 ? p->value->grad : x->grad, both, 1, N), 0, 1e-14);
            if (way == 4) continue;
            tn_record(ctx);                                        /* a watched gradient adds up over passes */
            CHECK_STATUS(tn_backward(ctx, tn_cross_entropy(ctx, x, y)), TN_OK);
            for (int64_t j = 0; j < N; j++) both[j] += want[j];
            CHECK_NEAR(off(x->grad, both, 1, N), 0, 1e-14);
        }
        CLOSE_CTX(ctx);
    }
}

/* The loss over rows that are not ignored is the loss of these rows alone, gradients included; of none of them it is zero. */
TEST(cross_entropy_ignores_rows)
{
    static const int32_t ignored[3] = {-100, 1, C};
    for (int which = 0; which < 2; which++)
        for (int k = 0; k < 6; k++) {
            tn_ctx  *ctx = ctx_on(backend_of(which), TN_F64, TN_SIMD_AUTO, 0);
            uint64_t seed = 31;
            double   z[N], loss = 0, want[N];
            int32_t  label[R];
            int64_t  rows = R, kept = 0;
            random_values(&seed, z, N);
            for (int64_t r = 0; r < R; r++) {
                double sum = 0;
                label[r] = k >= 3 || r % 3 == 0 ? ignored[k % 3] : (int32_t)(r * 3 % C);
                const bool counts = label[r] != ignored[k % 3];
                for (int64_t j = 0; j < C; j++) sum += exp(z[r * C + j]);
                for (int64_t j = 0; j < C; j++) want[r * C + j] = counts ? exp(z[r * C + j]) / sum - (j == label[r]) : 0;
                kept += counts;
                if (counts) loss += log(sum) - z[r * C + label[r]];
            }
            CHECK((kept > 0) == (k < 3));
            for (int64_t j = 0; j < N && kept > 0; j++) want[j] /= (double)kept;
            tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, R, C), *y = tn_tensor_nd(ctx, TN_I32, 1, &rows);
            CHECK(tn_write(x, TN_F64, z, N) == TN_OK && tn_write(y, TN_I32, label, R) == TN_OK && tn_watch(x) == TN_OK);
            tn_record(ctx);
            tn_tensor *l = tn_cross_entropy_ignore(ctx, x, y, ignored[k % 3]);
            CHECK_STATUS(tn_backward(ctx, l), TN_OK);
            CHECK_NEAR(tn_item(l), kept > 0 ? loss / (double)kept : 0, 1e-14);
            CHECK_NEAR(off(x->grad, want, 1, N), 0, 1e-14);
            if (k == 0) {                                             /* another label out of range is still an error */
                tn_cross_entropy_ignore(ctx, x, y, -99);
                CHECK_STATUS(tn_ctx_sync(ctx), TN_ERR_DATA);
                CHECK_ERROR(ctx, TN_ERR_DATA, "cross_entropy: element 0 of the labels is -100");
            }
            CLOSE_CTX(ctx);
        }
}

/* Nothing is kept for a gradient that nobody wants. */
TEST(cross_entropy_of_a_constant)
{
    tn_ctx *ctx = ctx_on(tn_cpu_backend(), TN_F64, TN_SIMD_AUTO, 0);
    int64_t rows = 4096;
    tn_ctx_reset(ctx);
    tn_tensor *x = tn_full(ctx, 1, &rows, 0);
    x = tn_mul(ctx, tn_reshape_2d(x, rows, 1), tn_reshape_2d(tn_full(ctx, 1, &rows, 1), 1, rows));
    tn_tensor *y = tn_tensor_nd(ctx, TN_I32, 1, &rows);
    {
        int32_t *label = (int32_t *)calloc((size_t)rows, sizeof *label);
        CHECK_STATUS(tn_write(y, TN_I32, label, rows), TN_OK);
        free(label);
    }
    size_t arena = tn_ctx_memory(ctx).arena;
    tn_record(ctx);
    CHECK_NEAR(tn_item(tn_cross_entropy(ctx, x, y)), log((double)rows), 1e-12);
    CHECK(tn_ctx_memory(ctx).arena == arena);
    CLOSE_CTX(ctx);
}

TEST_MAIN(first_writer_overwrites, writers_add, cross_entropy_counts, cross_entropy_ignores_rows, cross_entropy_of_a_constant)
