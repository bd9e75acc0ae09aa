/* test_tn_attention.c: tensor-network attention against its definition as a sum over all bonds, published numbers, finite
   differences, exact layers, states, and input that is wrong. */

#include "kit.h"

enum { MOST = 4096 };

static tn_tn_attention_desc desc_of(int64_t in, int64_t bond, int64_t out, tn_boundary boundary)
{
    tn_tn_attention_desc d = ZERO;
    d.in = in;
    d.bond = bond;
    d.out = out;
    d.boundary = boundary;
    return d;
}

static tn_tensor *tensor_of(tn_ctx *ctx, int64_t b, int64_t n, int64_t d, const double *v)
{
    const int64_t shape[3] = {b, n, d};
    return tn_tensor_from(ctx, 3, shape, TN_F64, v);
}

static void fill(double *v, int64_t n, uint64_t *rng)
{
    for (int64_t i = 0; i < n; i++) v[i] = test_random_real(rng);
}

/* ---- the definition: a sum over the values of all bonds, for one sequence -------------------------------------------- */

typedef struct oracle {
    const tn_tn_attention_desc *d;
    int64_t n, at;              /* sites; the one whose W is computed */
    double  a[MOST], b[MOST], left[16], right[16], x[64], u[64];
    double  w[64];              /* [out,in] */
} oracle;

static double matrix_at(const oracle *o, int64_t site, int64_t i, int64_t j)
{
    const int64_t d = o->d->in, D = o->d->bond, first = (o->d->sites > 0 ? site * D * D : 0) + i * D + j;
    const double *u = o->u + site * d;
    double        sum = 0;
    for (int64_t s = 0; s < d; s++) {
        if (!o->d->square) sum += o->a[first * d + s] * u[s];
        else for (int64_t t = 0; t < d; t++) sum += u[t] * o->a[(first * d + t) * d + s] * u[s];
    }
    return sum;
}

static void sum_bonds(oracle *o, int64_t site, int64_t start, int64_t bond, int64_t i, int64_t j, double product)
{
    const int64_t D = o->d->bond, size = o->d->out * o->d->in;
    if (site == o->n) {
        const double end = o->d->boundary == TN_BOUNDARY_CLOSED ? bond == start : o->right[o->d->causal ? j : bond];
        const double *b = o->b + ((o->d->sites > 0 ? o->at * D * D : 0) + i * D + j) * size;
        for (int64_t k = 0; k < size; k++) o->w[k] += product * end * b[k];
        return;
    }
    if (site == o->at && o->d->causal) {            /* nothing after it */
        for (int64_t next = 0; next < D; next++) sum_bonds(o, o->n, start, next, bond, next, product);
        return;
    }
    for (int64_t next = 0; next < D; next++) {
        if (site == o->at) sum_bonds(o, site + 1, start, next, bond, next, product);
        else sum_bonds(o, site + 1, start, next, i, j, product * matrix_at(o, site, bond, next));
    }
}

static double length_of(const double *v, int64_t n, bool magnitudes)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += magnitudes ? fabs(v[i]) : v[i] * v[i];
    return magnitudes ? sum : sqrt(sum);
}

/* y [n,out] of one sequence x [n,in] */
static void want_attention(oracle *o, double r, const double *bias, double *y)
{
    const tn_tn_attention_desc *d = o->d;
    for (int64_t j = 0; j < o->n; j++) {
        const double length = d->unit_inputs ? length_of(o->x + j * d->in, d->in, false) : 1;
        for (int64_t k = 0; k < d->in; k++) o->u[j * d->in + k] = length > 0 ? o->x[j * d->in + k] / length : 0;
    }
    for (int64_t j = 0; j < o->n; j++) {
        double *row = y + j * d->out;
        memset(o->w, 0, sizeof o->w);
        o->at = j;
        for (int64_t i = 0; i < d->bond; i++)
            sum_bonds(o, 0, i, i, 0, 0, d->boundary == TN_BOUNDARY_CLOSED ? 1 : o->left[i]);
        double length = length_of(o->w, d->out * d->in, false);
        for (int64_t t = 0; t < d->out; t++) {
            row[t] = bias ? bias[t] : 0;
            for (int64_t k = 0; k < d->in; k++) {
                double w = o->w[t * d->in + k];
                if (d->unit_weights) w = length > 0 ? w * (d->scale > 0 ? d->scale : sqrt((double)d->in)) / length : 0;
                if (d->act == TN_ACT_RELU && w < 0) w *= d->leak;
                if (d->act == TN_ACT_SIGMOID) w = 1 / (1 + exp(-w));
                if (d->act == TN_ACT_EXP) w = exp(w);
                row[t] += w * o->x[j * d->in + k];
            }
            if (d->residual) row[t] = (row[t] + r * o->x[j * d->in + t]) / 2;
        }
        length = d->norm == TN_ROW_NORM_NONE ? 1 : length_of(row, d->out, d->norm == TN_ROW_NORM_L1);
        for (int64_t t = 0; t < d->out; t++) row[t] /= length;
    }
}

/* ---- layers of all kinds ----------------------------------------------------------------------------------------- */

static tn_tn_attention_desc kind_of(int kind)
{
    tn_tn_attention_desc d = desc_of(2, 3, 2, (tn_boundary)(kind % 4));
    if (kind / 4 % 2) d.square = true;
    if (kind / 8 == 0) d.residual = true;
    if (kind / 8 == 1) { d.sites = 4; d.residual = d.boundary == TN_BOUNDARY_VECTORS; }
    if (kind / 8 == 2) { d.unit_inputs = d.unit_weights = true; d.scale = 1.5; d.out = 3; d.act = TN_ACT_SIGMOID; }
    if (kind / 8 == 3) { d.unit_weights = true; d.residual = d.bias = true; d.norm = TN_ROW_NORM_L2; d.act = TN_ACT_EXP; }
    if (kind / 8 == 4) { d.unit_inputs = true; d.act = TN_ACT_RELU; d.leak = 0.1; d.norm = TN_ROW_NORM_L1; d.bias = true; }
    if (kind / 8 == 5) d.causal = d.boundary != TN_BOUNDARY_CLOSED;
    if (kind / 8 == 6) { d.causal = d.boundary != TN_BOUNDARY_CLOSED; d.sites = 4; d.in = 3; }
    return d;
}
enum { KINDS = 7 * 8 };

/* The parameters of the layer, random. For the dominant boundary A[:,:,0] has positive elements: its dominant eigenvalue is
   then real and above all others (Perron). */
static void draw_layer(tn_params *ps, const tn_tn_attention *layer, uint64_t *rng)
{
    double v[MOST];
    for (int64_t i = 0; i < tn_params_count(ps); i++) {
        tn_param *p = tn_params_at(ps, i);
        fill(v, tn_tensor_count(p->value), rng);
        if (p->value == layer->a && layer->desc.boundary == TN_BOUNDARY_DOMINANT) {
            const int64_t n = tn_tensor_count(p->value), s = layer->desc.in * (layer->desc.square ? layer->desc.in : 1);
            for (int64_t k = 0; k < n; k += s) v[k] = fabs(v[k]) + 0.1;
        }
        CHECK_STATUS(tn_write(p->value, TN_F64, v, tn_tensor_count(p->value)), TN_OK);
    }
}

/* An eigenvector of A[:,:,0] of a site by 4000 steps of the power method. */
static void power_vector(const oracle *o, int64_t site, bool right, double *v)
{
    const int64_t D = o->d->bond, s = o->d->in * (o->d->square ? o->d->in : 1);
    const double *a = o->a + site * D * D * s;
    double        next[16];
    for (int64_t i = 0; i < D; i++) v[i] = 1 + (double)i;
    for (int64_t step = 0; step < 4000; step++) {
        for (int64_t i = 0; i < D; i++) {
            next[i] = 0;
            for (int64_t j = 0; j < D; j++) next[i] += a[(right ? i * D + j : j * D + i) * s] * v[j];
        }
        double length = length_of(next, D, false);
        for (int64_t i = 0; i < D; i++) v[i] = next[i] / length;
    }
}

/* Signs: the largest component of a right vector is positive, and so is the product with the left one of its site. */
static void power_vectors(oracle *o)
{
    const int64_t D = o->d->bond, last = o->d->sites > 0 ? o->d->sites - 1 : 0;
    double        own[16], sum = 0, most = 0;
    int64_t       i;
    power_vector(o, 0, false, o->left);
    power_vector(o, 0, true, own);
    power_vector(o, last, true, o->right);
    for (i = 0; i < D; i++) if (fabs(own[i]) > fabs(most)) most = own[i];
    for (i = 0; i < D; i++) sum += o->left[i] * own[i];
    for (i = 0; i < D && sum * most < 0; i++) o->left[i] = -o->left[i];
    for (most = 0, i = 0; i < D; i++) if (fabs(o->right[i]) > fabs(most)) most = o->right[i];
    for (i = 0; i < D && most < 0; i++) o->right[i] = -o->right[i];
}

static void oracle_of(oracle *o, const tn_tn_attention *layer, int64_t n)
{
    const int64_t D = layer->desc.bond;
    memset(o, 0, sizeof *o);
    o->d = &layer->desc;
    o->n = n;
    CHECK_STATUS(tn_read(layer->a, TN_F64, o->a, tn_tensor_count(layer->a)), TN_OK);
    CHECK_STATUS(tn_read(layer->b, TN_F64, o->b, tn_tensor_count(layer->b)), TN_OK);
    o->left[0] = o->right[0] = 1;
    if (layer->left) CHECK_STATUS(tn_read(layer->left, TN_F64, o->left, D), TN_OK);
    if (layer->right) CHECK_STATUS(tn_read(layer->right, TN_F64, o->right, D), TN_OK);
    if (layer->desc.boundary == TN_BOUNDARY_DOMINANT) power_vectors(o);
}

static void against_definition(tn_dtype dtype, double bound)
{
    static oracle o;
    tn_ctx  *ctx = ctx_threads(dtype, 1, NULL);
    uint64_t rng = 5;
    double   worst = 0;
    REQUIRE(ctx != NULL);
    for (int kind = 0; kind < KINDS; kind++) {
        const tn_tn_attention_desc d = kind_of(kind);
        tn_params      *ps = tn_params_create(ctx);
        tn_tn_attention layer;
        CHECK_STATUS(tn_tn_attention_init(ps, "t", &d, &layer), TN_OK);
        CHECK_NEAR(layer.desc.scale, d.scale > 0 ? d.scale : sqrt((double)d.in), 0);
        draw_layer(ps, &layer, &rng);
        for (int64_t n = d.sites > 0 ? d.sites : 1; n <= (d.sites > 0 ? d.sites : 6); n++) {
            double x[2 * 6 * 3], got[2 * 6 * 3], want[2 * 6 * 3], r = 0, bias[3];
            fill(x, 2 * n * d.in, &rng);
            CHECK_STATUS(tn_read(tn_tn_attention_forward(ctx, &layer, tensor_of(ctx, 2, n, d.in, x)), TN_F64, got,
                                 2 * n * d.out), TN_OK);
            oracle_of(&o, &layer, n);
            if (d.residual) r = tn_item(layer.r);
            if (d.bias) CHECK_STATUS(tn_read(layer.bias, TN_F64, bias, d.out), TN_OK);
            for (int64_t b = 0; b < 2; b++) {
                memcpy(o.x, x + b * n * d.in, sizeof *x * (size_t)(n * d.in));
                want_attention(&o, r, d.bias ? bias : NULL, want + b * n * d.out);
            }
            test_raise(&worst, test_frobenius(got, want, 2 * n * d.out));
        }
        tn_params_destroy(ps);
        tn_ctx_reset(ctx);
    }
    CHECK_CTX(ctx);
    WORST(dtype == TN_F64 ? "attention against the sum over bonds, F64" : "attention against the sum over bonds, F32", worst,
          bound);
    tn_ctx_destroy(ctx);
}

TEST(sums_over_all_bonds)
{
    against_definition(TN_F64, 1e-12);
    against_definition(TN_F32, 1e-5);
}

/* Numbers that were computed by hand in fractions of 1024. */
TEST(known_numbers)
{
    static const double want[2][6] = {{.1689453125, -.5576171875, .2509765625, .3466796875, .0869140625, -.0966796875},
                                      {.3447265625, -.3818359375, .4619140625, .1474609375, .34375, -.0263671875}};
    static const double x[6] = {.75, .25, .5, .5, .25, .75};
    tn_ctx *ctx = ctx_threads(TN_F64, 1, NULL);
    double  a[8], b[16], got[6], worst = 0;
    REQUIRE(ctx != NULL);
    for (int m = 0; m < 2; m++)
        for (int n = 0; n < 2; n++)
            for (int s = 0; s < 2; s++) {
                a[(m * 2 + n) * 2 + s] = ((3 * m + 5 * n + 7 * s) % 11 - 5) / 4.0;
                for (int t = 0; t < 2; t++) b[((m * 2 + n) * 2 + t) * 2 + s] = ((2 * m + 3 * n + 5 * t + 4 * s) % 7 - 3) / 2.0;
            }
    for (int open = 0; open < 2; open++) {
        const tn_tn_attention_desc d = desc_of(2, 2, 2, open ? TN_BOUNDARY_FIRST : TN_BOUNDARY_CLOSED);
        tn_params      *ps = tn_params_create(ctx);
        tn_tn_attention layer;
        CHECK_STATUS(tn_tn_attention_init(ps, "", &d, &layer), TN_OK);
        CHECK_STATUS(tn_write(layer.a, TN_F64, a, 8), TN_OK);
        CHECK_STATUS(tn_write(layer.b, TN_F64, b, 16), TN_OK);
        CHECK_STATUS(tn_read(tn_tn_attention_forward(ctx, &layer, tensor_of(ctx, 1, 3, 2, x)), TN_F64, got, 6), TN_OK);
        for (int i = 0; i < 6; i++) test_raise(&worst, fabs(got[i] - want[open][i]));
        tn_params_destroy(ps);
    }
    WORST("known numbers", worst, 1e-15);
    CLOSE_CTX(ctx);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* sum_i c_i y_i with fixed c, of an owned input x */
static tn_tensor *weighted(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x)
{
    tn_tensor *y = tn_tn_attention_forward(ctx, layer, x);
    double     c[64];
    uint64_t   rng = 9;
    if (!CHECK(y != NULL)) return NULL;
    fill(c, tn_tensor_count(y), &rng);
    return tn_sum(ctx, tn_mul(ctx, y, tensor_of(ctx, y->shape[0], y->shape[1], y->shape[2], c)));
}

static double loss_at(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x)
{
    tn_ctx_reset(ctx);
    double v = tn_item(weighted(ctx, layer, x));
    return v;
}

static double difference_error(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x, tn_tensor *of)
{
    const int64_t n = tn_tensor_count(of);
    double        v[MOST], g[MOST], want[MOST];
    if (!CHECK(of->grad != NULL) || !CHECK_STATUS(tn_read(of, TN_F64, v, n), TN_OK)
        || !CHECK_STATUS(tn_read(of->grad, TN_F64, g, n), TN_OK)) return HUGE_VAL;
    for (int64_t i = 0; i < n; i++) {
        const double h = 1e-4, was = v[i];
        double       f[4];
        for (int k = 0; k < 4; k++) {
            static const double step[4] = {-2, -1, 1, 2};
            v[i] = was + h * step[k];
            tn_write(of, TN_F64, v, n);
            f[k] = loss_at(ctx, layer, x);
        }
        v[i] = was;
        tn_write(of, TN_F64, v, n);
        want[i] = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
    }
    return test_max_error(g, want, n);
}

TEST(gradients)
{
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t rng = 11;
    double   worst = 0;
    tn_init  plain = ZERO;
    REQUIRE(ctx != NULL);
    for (int kind = 0; kind < KINDS; kind++) {
        const tn_tn_attention_desc d = kind_of(kind);
        const int64_t   shape[3] = {2, d.sites > 0 ? d.sites : 1 + kind % 4, d.in}, count = shape[0] * shape[1] * shape[2];
        tn_params      *ps = tn_params_create(ctx);
        tn_tn_attention layer;
        tn_param       *x = tn_params_add(ps, "x", 3, shape, plain);
        double          v[64];
        REQUIRE(x != NULL);
        CHECK_STATUS(tn_tn_attention_init(ps, "t", &d, &layer), TN_OK);
        draw_layer(ps, &layer, &rng);
        fill(v, count, &rng);
        for (int64_t i = 0; i < count; i++) v[i] += v[i] < 0 ? -0.2 : 0.2;
        tn_write(x->value, TN_F64, v, count);
        tn_ctx_reset(ctx);
        tn_record(ctx);
        CHECK_STATUS(tn_backward(ctx, weighted(ctx, &layer, x->value)), TN_OK);
        for (int64_t i = 0; i < tn_params_count(ps); i++)
            test_raise(&worst, difference_error(ctx, &layer, x->value, tn_params_at(ps, i)->value));
        tn_params_destroy(ps);
    }
    CHECK_CTX(ctx);
    WORST("gradients against differences", worst, 1e-7);
    tn_ctx_destroy(ctx);
}

/* The dominant boundary of matrices that are not symmetric: positive ones, whose dominant eigenvalue is real, or their
   negatives. */
TEST(gradients_of_dominant_boundaries)
{
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t rng = 12;
    double   worst = 0;
    tn_init  plain = ZERO;
    REQUIRE(ctx != NULL);
    for (int kind = 0; kind < 8; kind++) {
        tn_tn_attention_desc d = desc_of(2, 2 + kind % 3, 2, TN_BOUNDARY_DOMINANT);
        const int64_t   shape[3] = {2, 3, 2};
        tn_params      *ps = tn_params_create(ctx);
        tn_tn_attention layer;
        tn_param       *x = tn_params_add(ps, "x", 3, shape, plain);
        double          v[MOST];
        d.square = kind / 2 % 2;
        d.sites = kind / 4 ? 3 : 0;
        d.causal = kind == 5;
        REQUIRE(x != NULL);
        CHECK_STATUS(tn_tn_attention_init(ps, "t", &d, &layer), TN_OK);
        int64_t count = tn_tensor_count(layer.a);
        fill(v, count, &rng);
        for (int64_t i = 0; i < count; i++) v[i] = (kind % 2 ? -1 : 1) * (fabs(v[i]) + 0.1);
        tn_write(layer.a, TN_F64, v, count);
        fill(v, 12, &rng);
        tn_write(x->value, TN_F64, v, 12);
        tn_ctx_reset(ctx);
        tn_record(ctx);
        CHECK_STATUS(tn_backward(ctx, weighted(ctx, &layer, x->value)), TN_OK);
        test_raise(&worst, difference_error(ctx, &layer, x->value, layer.a));
        tn_params_destroy(ps);
    }
    CHECK_CTX(ctx);
    WORST("gradients of dominant boundaries", worst, 1e-8);
    tn_ctx_destroy(ctx);
}

/* ---- forms that are equal ---------------------------------------------------------------------------------------- */

/* Contexts that are quadratic in x are linear in x (x) x: W of one layer is the column 0 of W of the other, whose A has
   three indices. */
TEST(square_is_linear_in_products)
{
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t rng = 3;
    double   worst = 0;
    REQUIRE(ctx != NULL);
    for (int boundary = 0; boundary < 4; boundary++) {
        tn_tn_attention_desc d = desc_of(3, 4, 2, (tn_boundary)boundary);
        tn_params           *ps = tn_params_create(ctx), *qs = tn_params_create(ctx);
        tn_tn_attention      square, linear;
        double               x[2 * 5 * 3], xx[2 * 5 * 9], b[4 * 4 * 2 * 3], wide[4 * 4 * 6 * 9], want[2 * 5 * 6];
        double               got[2 * 5 * 6 * 9];
        d.square = true;
        CHECK_STATUS(tn_tn_attention_init(ps, "", &d, &square), TN_OK);
        d = desc_of(9, 4, 6, (tn_boundary)boundary);
        CHECK_STATUS(tn_tn_attention_init(qs, "", &d, &linear), TN_OK);
        fill(x, 2 * 5 * 3, &rng);
        for (int64_t i = 0; i < 2 * 5; i++) for (int64_t j = 0; j < 9; j++) xx[i * 9 + j] = x[i * 3 + j / 3] * x[i * 3 + j % 3];
        CHECK_STATUS(tn_assign(linear.a, tn_reshape(square.a, 3, linear.a->shape)), TN_OK);
        if (square.left) {
            CHECK_STATUS(tn_assign(linear.left, square.left), TN_OK);
            CHECK_STATUS(tn_assign(linear.right, square.right), TN_OK);
        }
        tn_read(square.b, TN_F64, b, 4 * 4 * 6);
        memset(wide, 0, sizeof wide);
        for (int64_t i = 0; i < 4 * 4 * 6; i++) wide[i * 9] = b[i];
        tn_write(linear.b, TN_F64, wide, 4 * 4 * 6 * 9);
        tn_read(tn_tn_attention_weights(ctx, &square, tensor_of(ctx, 2, 5, 3, x)), TN_F64, want, 2 * 5 * 6);
        tn_read(tn_tn_attention_weights(ctx, &linear, tensor_of(ctx, 2, 5, 9, xx)), TN_F64, got, 2 * 5 * 6 * 9);
        for (int64_t i = 0; i < 2 * 5 * 6; i++) got[i] = got[i * 9];
        test_raise(&worst, test_frobenius(got, want, 2 * 5 * 6));
        tn_params_destroy(ps);
        tn_params_destroy(qs);
    }
    CHECK_CTX(ctx);
    WORST("contexts of x (x) x", worst, 1e-13);
    tn_ctx_destroy(ctx);
}

/* y_j as a net is what the layer gives, for all plain kinds; what is no tensor is refused. */
TEST(layers_are_nets)
{
    enum { N = 4, B = 3 };
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t rng = 31;
    double   worst = 0, cosine;
    REQUIRE(ctx != NULL);
    for (int kind = 0; kind < 32; kind++) {
        tn_tn_attention_desc d = desc_of(2, 3, 3, (tn_boundary)(kind % 4));
        tn_params           *ps = tn_params_create(ctx);
        tn_tn_attention      layer;
        tn_tensor           *leg[2 * N];
        double               v[B * N * 2], want[B * N * 3], got[B * 3], b[MOST];
        d.square = kind / 4 % 2;
        d.sites = kind / 8 % 2 ? N : 0;
        d.causal = kind / 16 && d.boundary != TN_BOUNDARY_CLOSED;
        CHECK_STATUS(tn_tn_attention_init(ps, "t", &d, &layer), TN_OK);
        draw_layer(ps, &layer, &rng);
        fill(v, B * N * 2, &rng);
        tn_tensor *x = tensor_of(ctx, B, N, 2, v);
        CHECK_STATUS(tn_read(tn_tn_attention_forward(ctx, &layer, x), TN_F64, want, B * N * 3), TN_OK);
        int64_t count = tn_tensor_count(layer.b);
        tn_read(layer.b, TN_F64, b, count);
        for (int64_t j = 0; j < N; j++) {
            tn_net *net = tn_net_from_tn_attention(ctx, &layer, N, j);
            double  size = 0, apart = 0;
            if (!CHECK(net && net->outs == 1 && net->legs == (d.causal ? j : N - 1) * (1 + d.square) + 1)) break;
            for (int64_t k = 0; k < net->legs; k++) {
                int64_t i = net->in[k].input;
                leg[k] = tn_reshape_2d(tn_copy(ctx, tn_slice(x, 1, i, i + 1)), B, 2);
            }
            CHECK_STATUS(tn_read(tn_net_apply_each(ctx, net, leg), TN_F64, got, B * 3), TN_OK);
            for (int64_t i = 0; i < B * 3; i++) {
                test_raise(&apart, fabs(got[i] - want[(i / 3 * N + j) * 3 + i % 3]));
                test_raise(&size, fabs(got[i]));
            }
            test_raise(&worst, apart / size);
            for (int64_t i = 0; i < count; i++) b[i] *= -2;     /* the net owns copies: this is another function */
            tn_write(layer.b, TN_F64, b, count);
            tn_net *other = tn_net_from_tn_attention(ctx, &layer, N, j);
            CHECK_STATUS(tn_net_cosine(net, other, TN_NET_AS_GIVEN, &cosine), TN_OK);
            test_raise(&worst, fabs(cosine + 1));
            for (int64_t i = 0; i < count; i++) b[i] /= -2;
            tn_write(layer.b, TN_F64, b, count);
            tn_net_destroy(other);
            tn_net_destroy(net);
        }
        if (kind == 8) {
            REFUSED(ctx, tn_net_from_tn_attention(ctx, &layer, 3, 0), TN_ERR_ARG, "net_from_tn_attention: n is 3, expected 4");
            CHECK(!tn_net_from_tn_attention(ctx, &layer, 4, 4));
            CHECK_ERROR(ctx, TN_ERR_ARG, "net_from_tn_attention: site is 4, expected 0 to 3");
            layer.desc.act = TN_ACT_EXP;
            CHECK(!tn_net_from_tn_attention(ctx, &layer, 4, 0));
            CHECK_ERROR(ctx, TN_ERR_ARG, "net_from_tn_attention: the layer has an activation, expected a tensor of its");
        }
        tn_params_destroy(ps);
    }
    REFUSED(ctx, tn_net_from_tn_attention(ctx, NULL, 4, 0), TN_ERR_ARG, "net_from_tn_attention: the layer is NULL");
    WORST("layers as nets", worst, 1e-12);
    tn_ctx_destroy(ctx);
}

/* Sequences in parts, by a state, and the future is not seen. */
TEST(states_continue)
{
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t rng = 17;
    double   worst = 0;
    REQUIRE(ctx != NULL);
    for (int form = 0; form < 4; form++) {
        tn_tn_attention_desc d = desc_of(3, 5, 3, form % 2 ? TN_BOUNDARY_FIRST : TN_BOUNDARY_VECTORS);
        tn_params           *ps = tn_params_create(ctx);
        tn_tn_attention      layer;
        double               x[2 * 9 * 3], want[2 * 9 * 3], got[2 * 9 * 3];
        int64_t              next;
        d.causal = true;
        d.square = form == 1;
        d.unit_inputs = d.unit_weights = d.residual = form == 2;
        CHECK_STATUS(tn_tn_attention_init(ps, "t", &d, &layer), TN_OK);
        fill(x, 2 * 9 * 3, &rng);
        tn_tensor *whole = tensor_of(ctx, 2, 9, 3, x);
        tn_read(tn_tn_attention_forward(ctx, &layer, whole), TN_F64, want, 2 * 9 * 3);
        tn_tensor *state = tn_tn_attention_state(ctx, &layer, 2);
        CHECK_INT(tn_tensor_count(state), 2 * 6);
        for (int64_t at = 0; at < 9; at = next) {
            double part[2 * 9 * 3];
            next = at == 0 ? 4 : at + 1;                    /* a prompt, then one by one */
            tn_tensor *t = tn_tn_attention_decode(ctx, &layer, tn_copy(ctx, tn_slice(whole, 1, at, next)), state);
            tn_read(t, TN_F64, part, 2 * (next - at) * 3);
            for (int64_t i = 0; i < 2 * (next - at) * 3; i++)
                got[i / (3 * (next - at)) * 27 + at * 3 + i % (3 * (next - at))] = part[i];
        }
        test_raise(&worst, test_frobenius(got, want, 2 * 9 * 3));
        CHECK_CTX(ctx);
        tn_record(ctx);
        CHECK(tn_tn_attention_decode(ctx, &layer, whole, state) == NULL);
        CHECK_ERROR(ctx, TN_ERR_ARG, "tn_attention: the context is recording, expected decoding without it");
        tn_ctx_reset(ctx);
        tn_tensor_destroy(state);
        tn_params_destroy(ps);
    }
    CHECK_CTX(ctx);
    WORST("sequences in parts", worst, 1e-14);
    tn_ctx_destroy(ctx);
}

/* ---- exact layers ------------------------------------------------------------------------------------------------ */

static int cell_at(const int *c, int64_t j, int64_t n, bool ring)
{
    if (j < 0 || j >= n) return ring ? c[(j + n) % n] : 0;
    return c[j];
}

/* One layer with all 256 rules. */
TEST(every_elementary_automaton)
{
    static const int64_t lengths[4] = {3, 4, 9, 33};
    tn_ctx  *ctx = ctx_threads(TN_F32, 1, NULL);
    uint64_t rng = 30;
    int      rules[256];
    double   worst = 0;
    REQUIRE(ctx != NULL);
    for (int k = 0; k < 256; k++) rules[k] = k;
    for (int open = 0; open < 2; open++) {
        tn_params      *ps = tn_params_create(ctx);
        tn_tn_attention layer;
        CHECK_STATUS(tn_tn_attention_from_rules(ps, "ca", rules, 256, open ? TN_BOUNDARY_VECTORS : TN_BOUNDARY_CLOSED,
                                                &layer), TN_OK);
        for (int k = 0; k < 4; k++) {
            const int64_t n = lengths[k], strings = n < 5 ? (int64_t)1 << n : 12, cells = strings * n;
            int           c[12 * 33 + 16];
            double        x[2 * (12 * 33 + 16)];
            float        *y = (float *)malloc(sizeof *y * (size_t)cells * 256);
            REQUIRE(y != NULL);
            for (int64_t i = 0; i < cells; i++) {
                c[i] = n < 5 ? (int)(i / n >> i % n & 1) : (int)test_random_int(&rng, 0, 1);
                x[2 * i] = !c[i];
                x[2 * i + 1] = c[i];
            }
            tn_ctx_reset(ctx);
            tn_read(tn_tn_attention_forward(ctx, &layer, tensor_of(ctx, strings, n, 2, x)), TN_F32, y, cells * 256);
            for (int64_t i = 0; i < cells; i++)
                for (int64_t o = 0; o < 256; o++) {
                    const int *s = c + i / n * n;
                    int64_t j = i % n;
                    j = o >> (4 * cell_at(s, j - 1, n, !open) + 2 * s[j] + cell_at(s, j + 1, n, !open)) & 1;
                    test_raise(&worst, fabs((double)y[i * 256 + o] - (j ? 1 : -1)));
                }
            free(y);
        }
        tn_params_destroy(ps);
    }
    WORST("every elementary automaton, F32", worst, 1e-5);
    CLOSE_CTX(ctx);
}

/* Rule 30 on 1001101, and the dominant eigenvectors of A[:,:,0], which are the padding with zeros. */
TEST(rule_30)
{
    static const char *const want[3] = {"0111001", "1111001", "1111001"};
    static const double x[14] = {0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0, 1};
    tn_ctx   *ctx = ctx_threads(TN_F64, 1, NULL);
    const int rule = 30;
    REQUIRE(ctx != NULL);
    for (int k = 0; k < 3; k++) {
        tn_params      *ps = tn_params_create(ctx);
        tn_tn_attention layer;
        double          y[7];
        char            got[8] = "";
        CHECK_STATUS(tn_tn_attention_from_rules(ps, "", &rule, 1, k ? TN_BOUNDARY_VECTORS : TN_BOUNDARY_CLOSED, &layer), TN_OK);
        if (k == 2) layer.desc.boundary = TN_BOUNDARY_DOMINANT;
        CHECK_STATUS(tn_read(tn_tn_attention_forward(ctx, &layer, tensor_of(ctx, 1, 7, 2, x)), TN_F64, y, 7), TN_OK);
        for (int i = 0; i < 7; i++) {
            got[i] = y[i] > 0 ? '1' : '0';
            CHECK_NEAR(fabs(y[i]), k == 2 ? 0.5 : 1, 1e-13);
        }
        CHECK_STR(got, want[k]);
        tn_params_destroy(ps);
    }
    CLOSE_CTX(ctx);
}

/* y_j = sum_i v_i (k_i.q_j), of unit vectors u_i = x_i/|x_i| in k and v */
TEST(linear_attention)
{
    enum { D = 3, M = 2, O = 4, N = 6 };
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t rng = 23;
    double   worst = 0;
    REQUIRE(ctx != NULL);
    for (int causal = 0; causal < 2; causal++) {
        double          q[M * D], k[M * D], v[O * D], x[N * D], u[N * D], want[N * O], got[N * O];
        tn_params      *ps = tn_params_create(ctx);
        tn_tn_attention layer;
        fill(q, M * D, &rng); fill(k, M * D, &rng); fill(v, O * D, &rng); fill(x, N * D, &rng);
        for (int i = 0; i < N * D; i++) u[i] = x[i] / length_of(x + i / D * D, D, false);
        for (int j = 0; j < N; j++)
            for (int a = 0; a < O; a++) {
                want[j * O + a] = 0;
                for (int i = 0; i < (causal ? j : N); i++) {
                    double value = 0, score = 0;
                    if (i == j) continue;
                    for (int s = 0; s < D; s++) value += v[a * D + s] * u[i * D + s];
                    for (int b = 0; b < M; b++) {
                        double kb = 0, qb = 0;
                        for (int s = 0; s < D; s++) {
                            kb += k[b * D + s] * u[i * D + s];
                            qb += q[b * D + s] * x[j * D + s];
                        }
                        score += kb * qb;
                    }
                    want[j * O + a] += value * score;
                }
            }
        CHECK_STATUS(tn_tn_attention_from_linear_attention(ps, "", tensor_of(ctx, 1, M, D, q), tensor_of(ctx, 1, M, D, k),
                                                 tensor_of(ctx, 1, O, D, v), causal, &layer), TN_ERR_SHAPE);
        CHECK_ERROR(ctx, TN_ERR_SHAPE, "tn_attention_from_linear_attention: q is [1,2,3], expected [1,1]");
        CHECK_STATUS(tn_tn_attention_from_linear_attention(ps, "", tn_reshape_2d(tensor_of(ctx, 1, M, D, q), M, D),
                                                 tn_reshape_2d(tensor_of(ctx, 1, M, D, k), M, D),
                                                 tn_reshape_2d(tensor_of(ctx, 1, O, D, v), O, D), causal, &layer), TN_OK);
        CHECK_INT(layer.desc.bond, O * M + 1);
        tn_read(tn_tn_attention_forward(ctx, &layer, tensor_of(ctx, 1, N, D, x)), TN_F64, got, N * O);
        test_raise(&worst, test_frobenius(got, want, N * O));
        tn_params_destroy(ps);
    }
    CHECK_CTX(ctx);
    WORST("linear attention", worst, 1e-13);
    tn_ctx_destroy(ctx);
}

/* The tensor of the layer for three sites is the sum of P_01, P_02 and P_12, and the layer's outputs follow from it. */
TEST(sum_of_permutations)
{
    enum { D = 2, N = 5, BOND = D * D + 2 };
    tn_ctx         *ctx = ctx_threads(TN_F64, 1, NULL);
    tn_params      *ps = ctx ? tn_params_create(ctx) : NULL;
    tn_tn_attention layer;
    uint64_t        rng = 29;
    double          a[BOND * BOND * D * D], x[N * D], want[N * D], got[N * D], worst = 0;
    REQUIRE(ps != NULL);
    CHECK_STATUS(tn_tn_attention_from_permutations(ps, "", D, &layer), TN_OK);
    tn_read(layer.a, TN_F64, a, BOND * BOND * D * D);
    for (int t = 0; t < 8; t++)
        for (int s = 0; s < 8; s++) {
            const int to[3] = {t & 1, t >> 1 & 1, t >> 2 & 1}, from[3] = {s & 1, s >> 1 & 1, s >> 2 & 1};
            double    sum = 0, p = 0;
            for (int i = 0; i < BOND; i++)
                for (int j = 0; j < BOND; j++)
                    sum += a[((0 * BOND + i) * D + to[0]) * D + from[0]] * a[((i * BOND + j) * D + to[1]) * D + from[1]]
                           * a[((j * BOND + BOND - 1) * D + to[2]) * D + from[2]];
            for (int i = 0; i < 3; i++)
                for (int j = i + 1; j < 3; j++)
                    p += to[i] == from[j] && to[j] == from[i] && to[3 - i - j] == from[3 - i - j];
            test_raise(&worst, fabs(sum - p));
        }
    fill(x, N * D, &rng);
    for (int i = 0; i < N; i++) {
        const double length = length_of(x + i * D, D, false);
        for (int s = 0; s < D; s++) x[i * D + s] /= length;
    }
    for (int j = 0; j < N; j++) {
        double dots = 0;
        memset(want + j * D, 0, sizeof *want * D);
        for (int i = 0; i < N; i++)
            for (int k = i + 1; k < N; k++) {
                const double dot = x[i * D] * x[k * D] + x[i * D + 1] * x[k * D + 1];
                if (i != j && k != j) dots += dot * dot;
                else for (int s = 0; s < D; s++) want[j * D + s] += dot * x[(i == j ? k : i) * D + s];
            }
        for (int s = 0; s < D; s++) want[j * D + s] += dots * x[j * D + s];
    }
    tn_read(tn_tn_attention_forward(ctx, &layer, tensor_of(ctx, 1, N, D, x)), TN_F64, got, N * D);
    test_raise(&worst, test_frobenius(got, want, N * D));
    CHECK_CTX(ctx);
    WORST("sum of permutations", worst, 1e-13);
    tn_ctx_destroy(ctx);
}

/* ---- its rule ---------------------------------------------------------------------------------------------------- */

/* The rule of an exact layer, in another basis and with other factors at each cell; and of one that was changed. */
/* Margin and distance of a layer by their definitions, from its outputs and those of the layer of its rule. */
static void read_rule(tn_ctx *ctx, const tn_tn_attention *layer, int n, const tn_rule_reading *got)
{
    const int       strings = 1 << n;
    tn_params      *ps = tn_params_create(ctx);
    tn_tn_attention ideal;
    double          x[2 * 7 * 128], z[7 * 128], u[7 * 128], square = 0, margin = HUGE_VAL, apart = 0;
    CHECK_STATUS(tn_tn_attention_from_rules(ps, "", &got->rule, 1, layer->desc.boundary, &ideal), TN_OK);
    for (int i = 0; i < strings * n; i++) {
        x[2 * i + 1] = i / n >> i % n & 1;
        x[2 * i] = 1 - x[2 * i + 1];
    }
    tn_read(tn_tn_attention_forward(ctx, layer, tensor_of(ctx, strings, n, 2, x)), TN_F64, z, strings * n);
    tn_read(tn_tn_attention_forward(ctx, &ideal, tensor_of(ctx, strings, n, 2, x)), TN_F64, u, strings * n);
    for (int i = 0; i < strings * n; i++) square += z[i] * z[i] / (strings * n);
    for (int i = 0; i < strings; i++)
        for (int j = 0; j < n; j++) {
            const int    at = i * n + j, other = (i ^ 1 << j) * n + j;
            const double length = hypot(z[at], z[other]), ideally = hypot(u[at], u[other]);
            if (z[at] * u[at] / sqrt(square) < margin) margin = z[at] * u[at] / sqrt(square);
            apart += pow(z[at] / length - u[at] / ideally, 2) / (strings * n);      /* each pair is met twice, with one half */
        }
    CHECK_NEAR(got->margin, margin, 1e-12);
    CHECK_NEAR(got->distance, sqrt(2 * apart), 1e-12);
    tn_params_destroy(ps);
}

TEST(rules_are_read_back)
{
    static const int rules[4] = {30, 110, 184, 0};
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    REQUIRE(ctx != NULL);
    for (int k = 0; k < 8; k++) {
        tn_params      *ps = tn_params_create(ctx);
        tn_tn_attention layer;
        tn_rule_reading r;
        double          a[32], b[32], ga[32], gb[32];
        CHECK_STATUS(tn_tn_attention_from_rules(ps, "", rules + k / 2, 1, k % 2 ? TN_BOUNDARY_VECTORS : TN_BOUNDARY_CLOSED,
                                                &layer), TN_OK);
        /* A -> X^-1 A X with X = 1 + 3 e_0 e_2^T, and one matrix twice as large */
        tn_read(layer.a, TN_F64, a, 32);
        tn_read(layer.b, TN_F64, b, 32);
        memcpy(ga, a, sizeof a);
        memcpy(gb, b, sizeof b);
        for (int i = 0; i < 4; i++) for (int s = 0; s < 2; s++) {
            ga[(i * 4 + 2) * 2 + s] += 3 * a[i * 4 * 2 + s];
            gb[(i * 4 + 2) * 2 + s] += 3 * b[i * 4 * 2 + s];
        }
        for (int j = 0; j < 4; j++) for (int s = 0; s < 2; s++) {
            ga[j * 2 + s] -= 3 * ga[(2 * 4 + j) * 2 + s];
            gb[j * 2 + s] -= 3 * gb[(2 * 4 + j) * 2 + s];
        }
        if (k % 2 == 0) {
            for (int i = 0; i < 16; i++) ga[2 * i + 1] *= 2;
            tn_write(layer.a, TN_F64, ga, 32);
            tn_write(layer.b, TN_F64, gb, 32);
        }
        CHECK_STATUS(tn_tn_attention_rule(ctx, &layer, 7, &r), TN_OK);
        CHECK_INT(r.rule, rules[k / 2]);
        CHECK_NEAR(r.agree, 1, 0);
        CHECK(r.margin > 0);
        CHECK_NEAR(r.distance, 0, 1e-7);
        for (int i = 0; i < 32; i++) b[i] = 0.5 * b[i] + 0.3 * sin(i + 1.0);
        tn_write(layer.a, TN_F64, a, 32);
        tn_write(layer.b, TN_F64, b, 32);
        tn_mark before = tn_arena_mark(ctx);
        CHECK_STATUS(tn_tn_attention_rule(ctx, &layer, 7, &r), TN_OK);
        tn_mark after = tn_arena_mark(ctx);
        CHECK(before.head_used == after.head_used && before.data_used == after.data_used);      /* nothing stays */
        CHECK(r.distance > 0.1);
        read_rule(ctx, &layer, 7, &r);
        tn_params_destroy(ps);
    }
    CLOSE_CTX(ctx);
}

/* The reading does not depend on the scale of the outputs, whatever their squares are; outputs that are no numbers have
   none. */
TEST(rules_of_any_scale)
{
    static const double scale[3] = {1, 1e-60, 1e60};
    const int       rule = 110;
    tn_ctx         *ctx = ctx_threads(TN_F64, 1, NULL);
    tn_params      *ps = ctx ? tn_params_create(ctx) : NULL;
    tn_tn_attention layer;
    tn_rule_reading r[3];
    double          a[32];
    REQUIRE(ps != NULL);
    CHECK_STATUS(tn_tn_attention_from_rules(ps, "", &rule, 1, TN_BOUNDARY_CLOSED, &layer), TN_OK);
    tn_read(layer.b, TN_F64, a, 32);
    for (int i = 0; i < 32; i++) a[i] += 0.1 * sin(i + 1.0);
    tn_write(layer.b, TN_F64, a, 32);
    tn_read(layer.a, TN_F64, a, 32);
    for (int k = 0; k < 3; k++) {                           /* to the fourth power, and squared again */
        for (int i = 0; i < 32; i++) a[i] *= scale[k] / (k > 0 ? scale[k - 1] : 1);
        tn_write(layer.a, TN_F64, a, 32);
        CHECK_STATUS(tn_tn_attention_rule(ctx, &layer, 5, &r[k]), TN_OK);
        CHECK_INT(r[k].rule, rule);
        CHECK_NEAR(r[k].margin, r[0].margin, 1e-12);
        CHECK_NEAR(r[k].distance, r[0].distance, 1e-12);
        for (int i = 0; i < 8; i++) CHECK_NEAR(r[k].mean[i], r[0].mean[i], 1e-12);
    }
    CHECK(r[0].distance > 0.01 && r[0].margin < 0.99);
    a[9] = (double)NAN;
    tn_write(layer.a, TN_F64, a, 32);
    FAILS(ctx, tn_tn_attention_rule(ctx, &layer, 5, &r[0]), TN_ERR_NONFINITE, "tn_attention_rule: an output of the layer is ");
    tn_ctx_destroy(ctx);
}

/* ---- long, short, zero, wrong ------------------------------------------------------------------------------------ */

/* 20,000 sites of random matrices: finite, and as at a length of 400 far from the ends. */
TEST(long_sequences)
{
    tn_ctx *ctx = ctx_threads(TN_F32, 1, NULL);
    REQUIRE(ctx != NULL);
    for (int open = 0; open < 2; open++) {
        tn_tn_attention_desc d = desc_of(2, 4, 2, open ? TN_BOUNDARY_FIRST : TN_BOUNDARY_CLOSED);
        const int64_t        n = 20000;
        const int64_t        shape[3] = {1, n, 2};
        tn_params           *ps = tn_params_create(ctx);
        tn_tn_attention      layer;
        float               *y = (float *)malloc(sizeof *y * (size_t)n * 2);
        double               largest = 0, smallest = HUGE_VAL;
        REQUIRE(y != NULL);
        d.unit_inputs = d.unit_weights = true;
        CHECK_STATUS(tn_tn_attention_init(ps, "", &d, &layer), TN_OK);
        tn_ctx_reset(ctx);
        tn_record(ctx);
        {
            tn_tensor *out = tn_tn_attention_forward(ctx, &layer, tn_normal(ctx, 3, shape, 0, 1));
            tn_read(out, TN_F32, y, n * 2);
            CHECK_STATUS(tn_backward(ctx, tn_mean(ctx, out)), TN_OK);
        }
        for (int64_t i = 0; i < n; i++) {
            const double size = hypot(y[2 * i], y[2 * i + 1]);
            test_raise(&largest, size);
            if (size < smallest) smallest = size;
        }
        CHECK(largest < 10 && smallest > 0);
        CHECK(fabs(tn_item(tn_sum(ctx, layer.a->grad))) < HUGE_VAL);
        free(y);
        tn_params_destroy(ps);
    }
    CLOSE_CTX(ctx);
}

/* A vector of zeros makes the contexts of all other sites zero, and so y = 0: never NaN, and no gradient is NaN. */
TEST(zero_vectors)
{
    tn_ctx *ctx = ctx_threads(TN_F32, 1, NULL);
    REQUIRE(ctx != NULL);
    for (int kind = 0; kind < 16; kind++) {
        tn_tn_attention_desc d = desc_of(2, 3, 2, (tn_boundary)(kind % 4));
        const int64_t        n = kind / 8 ? 5 : 1;
        double               x[10] = {1, 2, 0, 0, 1, 1, -1, 1, 2, 0}, y[10];
        tn_params           *ps = tn_params_create(ctx);
        tn_tn_attention      layer;
        if (n == 1) x[0] = x[1] = 0;
        d.unit_inputs = d.unit_weights = kind / 4 % 2;
        d.norm = d.unit_weights ? TN_ROW_NORM_L2 : TN_ROW_NORM_L1;
        CHECK_STATUS(tn_tn_attention_init(ps, "", &d, &layer), TN_OK);
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *out = tn_tn_attention_forward(ctx, &layer, tensor_of(ctx, 1, n, 2, x));
        CHECK_STATUS(tn_read(out, TN_F64, y, 2 * n), TN_OK);
        for (int i = 0; i < 2 * n; i++) CHECK(y[i] == 0);
        CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, out)), TN_OK);
        CHECK(fabs(tn_item(tn_sum(ctx, layer.a->grad))) < HUGE_VAL && fabs(tn_item(tn_sum(ctx, layer.b->grad))) < HUGE_VAL);
        tn_params_destroy(ps);
    }
    CLOSE_CTX(ctx);
}

static void refused(tn_ctx *ctx, const tn_tn_attention_desc *d, tn_status status, const char *part)
{
    tn_params      *ps = tn_params_create(ctx);
    tn_tn_attention layer;
    CHECK_STATUS(tn_tn_attention_init(ps, "t", d, &layer), status);
    CHECK_ERROR(ctx, status, part);
    CHECK(layer.a == NULL && tn_params_count(ps) == 0);
    tn_params_destroy(ps);
}

TEST(wrong_descs)
{
    const tn_tn_attention_desc good = desc_of(2, 3, 0, TN_BOUNDARY_CLOSED);
    const int                  nine = 9;
    tn_ctx                    *ctx = ctx_threads(TN_F32, 1, NULL);
    REQUIRE(ctx != NULL);
    tn_tn_attention_desc d = good; d.in = 0;              refused(ctx, &d, TN_ERR_SHAPE,
                                                                  "tn_attention t: in is 0, expected 1 to 2^31 - 2");
    d = good; d.bond = -1;           refused(ctx, &d, TN_ERR_SHAPE, "tn_attention t: bond is -1, expected");
    d = good; d.out = -1;            refused(ctx, &d, TN_ERR_SHAPE, "tn_attention t: out is -1, expected");
    d = good; d.sites = -2;          refused(ctx, &d, TN_ERR_SHAPE, "tn_attention t: sites is -2, expected");
    d = good; d.causal = true;       refused(ctx, &d, TN_ERR_ARG, "tn_attention t: causal is true, expected false");
    d = good; memcpy(&d.boundary, &nine, sizeof d.boundary);
    refused(ctx, &d, TN_ERR_ARG, "boundary is 9, not a valid tn_boundary");
    d = good; d.act = (tn_act)15;    refused(ctx, &d, TN_ERR_ARG, "act is 15, not a valid tn_act");
    d = good; d.norm = (tn_row_norm)3; refused(ctx, &d, TN_ERR_ARG, "norm is 3, not a valid tn_row_norm");
    d = good; d.leak = 0.1;          refused(ctx, &d, TN_ERR_ARG, "leak is 0.1, expected a finite number, and 0 unless");
    d = good; d.scale = 2;           refused(ctx, &d, TN_ERR_ARG, "scale is 2, expected a positive number, and 0 without");
    d = good; d.out = 3; d.residual = true; refused(ctx, &d, TN_ERR_SHAPE, "out is 3, expected in = 2 with a residual");
    d = good; d.eps = -1;            refused(ctx, &d, TN_ERR_ARG, "eps is -1");
    d = good; d.bond = 1 << 20; d.in = 1 << 20; refused(ctx, &d, TN_ERR_MEMORY, "");
    CHECK_STATUS(tn_tn_attention_init(NULL, "t", &good, NULL), TN_ERR_ARG);
    tn_ctx_destroy(ctx);
}

static void forward_fails(tn_ctx *ctx, const tn_tn_attention *layer, tn_tensor *x, tn_status status, const char *part)
{
    CHECK(tn_tn_attention_forward(ctx, layer, x) == NULL);
    CHECK_ERROR(ctx, status, part);
}

TEST(wrong_input)
{
    static const double turn[8] = {0, 9, 1, 9, -1, 9, 0, 9}, swap[8] = {0, 9, 1, 9, 1, 9, 0, 9};
    static const double pair[18] = {1 + 1e-12, 9, 0, 9, 0, 9,  0, 9, 0, 9, 1, 9,  0, 9, -1, 9, 0, 9};      /* 1, i, -i */
    static const double nan_[8] = {(double)NAN, 9, 1, 9, 1, 9, 0, 9}, nothing[8] = {0, 1, 0, 1, 0, 1, 0, 1};
    tn_ctx              *ctx = ctx_threads(TN_F64, 1, NULL);
    tn_params           *ps = ctx ? tn_params_create(ctx) : NULL;
    tn_tn_attention_desc d = desc_of(2, 2, 2, TN_BOUNDARY_DOMINANT);
    tn_tn_attention      layer, ring, three;
    double               x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int                  rule = 256;
    tn_rule_reading      r;
    REQUIRE(ps != NULL);
    CHECK_STATUS(tn_tn_attention_init(ps, "t", &d, &layer), TN_OK);
    d.boundary = TN_BOUNDARY_CLOSED;
    d.sites = 3;
    CHECK_STATUS(tn_tn_attention_init(ps, "ring", &d, &ring), TN_OK);
    tn_write(layer.a, TN_F64, turn, 8);
    forward_fails(ctx, &layer, tensor_of(ctx, 1, 4, 2, x), TN_ERR_ARG, "tn_attention: the dominant eigenvalues of A[:,:,0] "
                  "are 0 +- 1i, expected a real one: TN_BOUNDARY_FIRST and TN_BOUNDARY_VECTORS need none");
    tn_write(layer.a, TN_F64, swap, 8);
    forward_fails(ctx, &layer, tensor_of(ctx, 1, 4, 2, x), TN_ERR_ARG, "have the magnitudes 1 and 1, expected one");
    tn_write(layer.a, TN_F64, nothing, 8);
    forward_fails(ctx, &layer, tensor_of(ctx, 1, 4, 2, x), TN_ERR_ARG, "have the magnitudes 0 and 0, expected one");
    d.sites = 0;
    d.bond = 3;
    d.boundary = TN_BOUNDARY_DOMINANT;
    CHECK_STATUS(tn_tn_attention_init(ps, "three", &d, &three), TN_OK);
    tn_write(three.a, TN_F64, pair, 18);
    forward_fails(ctx, &three, tensor_of(ctx, 1, 4, 2, x), TN_ERR_ARG, "have the magnitudes 1 and 1, expected one");
    tn_write(layer.a, TN_F64, nan_, 8);
    forward_fails(ctx, &layer, tensor_of(ctx, 1, 4, 2, x), TN_ERR_NONFINITE, "");
    forward_fails(ctx, &layer, tensor_of(ctx, 2, 2, 1, x), TN_ERR_SHAPE, "x is [2,2,1], expected [batch,sites,2]");
    forward_fails(ctx, &ring, tensor_of(ctx, 1, 4, 2, x), TN_ERR_SHAPE, "tn_attention: x is [1,4,2], expected [batch,3,2]");
    forward_fails(ctx, NULL, tensor_of(ctx, 1, 4, 2, x), TN_ERR_ARG, "tn_attention: the layer is NULL");
    CHECK(tn_tn_attention_forward(ctx, &ring, NULL) == NULL);
    tn_ctx_clear_error(ctx);
    CHECK(tn_tn_attention_state(ctx, &ring, 1) == NULL);
    CHECK_ERROR(ctx, TN_ERR_ARG, "tn_attention: the layer is not causal, expected a causal uniform one for a state");
    CHECK_STATUS(tn_tn_attention_from_rules(ps, "ca", &rule, 1, TN_BOUNDARY_CLOSED, &ring), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "tn_attention_from_rules: rule 0 is 256, expected 0 to 255");
    rule = 30;
    CHECK_STATUS(tn_tn_attention_from_rules(ps, "ca", &rule, 1, TN_BOUNDARY_FIRST, &ring), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "tn_attention_from_rules: boundary is 3, expected TN_BOUNDARY_CLOSED or TN_BOUNDARY_V");
    CHECK_STATUS(tn_tn_attention_from_rules(ps, "ca", &rule, 0, TN_BOUNDARY_CLOSED, &ring), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "tn_attention_from_rules: count is 0, expected 1 to 2^31 - 2");
    CHECK_STATUS(tn_tn_attention_from_permutations(ps, "p", -3, &ring), TN_ERR_SHAPE);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "tn_attention_from_permutations: in is -3, expected 1 to 46339");
    CHECK_STATUS(tn_tn_attention_from_linear_attention(ps, "l", NULL, NULL, NULL, false, NULL), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "tn_attention_from_linear_attention: layer is NULL");
    CHECK_STATUS(tn_tn_attention_rule(ctx, &layer, 2, &r), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "tn_attention_rule: n is 2, expected 3 to 14");
    tn_ctx_destroy(ctx);
}

/* What a layer begins with: a residual of weight 1, no bias; for the dominant boundary a symmetric A[:,:,0] at each site, unless
   another rule was asked for. */
TEST(first_parameters)
{
    tn_ctx *ctx = ctx_threads(TN_F64, 1, NULL);
    REQUIRE(ctx != NULL);
    for (int k = 0; k < 2; k++) {
        tn_tn_attention_desc d = desc_of(2, 3, 0, TN_BOUNDARY_DOMINANT);
        tn_params           *ps = tn_params_create(ctx);
        tn_tn_attention      layer;
        double               a[36], bias[2];
        int                  apart = 0;
        d.residual = d.bias = true;
        d.sites = 2;
        if (k) { d.init_a.rule = TN_INIT_NORMAL; d.init_a.std = 1; }
        CHECK_STATUS(tn_tn_attention_init(ps, "", &d, &layer), TN_OK);
        CHECK_INT(layer.desc.out, 2);
        tn_read(layer.a, TN_F64, a, 36);
        tn_read(layer.bias, TN_F64, bias, 2);
        CHECK(tn_item(layer.r) == 1 && bias[0] == 0 && bias[1] == 0);
        for (int site = 0; site < 2; site++)
            for (int i = 0; i < 3; i++)
                for (int j = 0; j < i; j++) apart += a[((site * 3 + i) * 3 + j) * 2] != a[((site * 3 + j) * 3 + i) * 2];
        CHECK_INT(apart, k ? 6 : 0);
        tn_params_destroy(ps);
    }
    CLOSE_CTX(ctx);
}

/* BF16 activations round inputs and results, but no context, of which there may be 40 one after the other. */
TEST(bf16_activations)
{
    double   got[2][40 * 2], x[40 * 2], size = 0, worst = 0;
    uint64_t rng = 61;
    int      i;
    for (i = 0; i < 80; i++) x[i] = (double)(2 * test_random_int(&rng, -8, 8) + 1) / 16;
    for (int boundary = 0; boundary < 4; boundary++) {
        for (int k = 0; k < 2; k++) {
            tn_tn_attention_desc d = desc_of(2, 3, 2, (tn_boundary)boundary);
            tn_tn_attention      layer;
            tn_desc              desc = ZERO;
            tn_ctx              *ctx;
            desc.dtype = TN_F32;
            desc.activations = k ? TN_BF16 : TN_REAL;
            desc.threads = 1;
            if (!CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK)) return;
            d.unit_inputs = d.unit_weights = true;
            CHECK_STATUS(tn_tn_attention_init(tn_params_create(ctx), "", &d, &layer), TN_OK);
            tn_tensor *y = tn_tn_attention_forward(ctx, &layer, tensor_of(ctx, 1, 40, 2, x));
            CHECK(y && y->dtype == (k ? TN_BF16 : TN_F32));
            y = tn_tn_attention_weights(ctx, &layer, tensor_of(ctx, 1, 40, 2, x));
            CHECK(y && y->dtype == (k ? TN_BF16 : TN_F32));
            y = tn_tn_attention_forward(ctx, &layer, tensor_of(ctx, 1, 40, 2, x));
            CHECK_STATUS(tn_read(y, TN_F64, got[k], 80), TN_OK);
            CLOSE_CTX(ctx);
        }
        for (size = 0, i = 0; i < 80; i++) size += got[0][i] * got[0][i] / 80;
        for (i = 0; i < 80; i++) test_raise(&worst, fabs(got[1][i] - got[0][i]) / (fabs(got[0][i]) + 1e-3 * sqrt(size)));
    }
    WORST("results in BF16, relatively", worst, 0.00391);       /* 2^-8: one rounding */
}

/* No site, and extents of 1. */
TEST(small_extents)
{
    tn_ctx *ctx = ctx_threads(TN_F64, 1, NULL);
    REQUIRE(ctx != NULL);
    for (int boundary = 0; boundary < 4; boundary++) {
        const tn_tn_attention_desc d = desc_of(1, 1, 1, (tn_boundary)boundary);
        tn_params      *ps = tn_params_create(ctx);
        tn_tn_attention layer;
        double          x[3] = {2, 3, 5}, got[3], a, b, l = 1, r = 1;
        CHECK_STATUS(tn_tn_attention_init(ps, "", &d, &layer), TN_OK);
        tn_tensor *y = tn_tn_attention_forward(ctx, &layer, tensor_of(ctx, 2, 0, 1, x));
        CHECK(y && y->rank == 3 && y->shape[0] == 2 && y->shape[1] == 0 && y->shape[2] == 1);
        tn_read(layer.a, TN_F64, &a, 1);
        tn_read(layer.b, TN_F64, &b, 1);
        if (layer.left) {
            tn_read(layer.left, TN_F64, &l, 1);
            tn_read(layer.right, TN_F64, &r, 1);
        }
        tn_read(tn_tn_attention_forward(ctx, &layer, tensor_of(ctx, 1, 3, 1, x)), TN_F64, got, 3);
        CHECK_NEAR(got[1], l * r * a * 2 * a * 5 * b * 3, 1e-13);
        tn_params_destroy(ps);
    }
    CLOSE_CTX(ctx);
}

/* ---- deep networks ------------------------------------------------------------------------------------------------- */

/* Bits as ids, and at each place the parity of those so far, or of all. */
static void parities(int64_t b, int64_t n, uint64_t *rng, int32_t *bits, int32_t *parity)
{
    for (int64_t i = 0; i < b * n; i++) {
        bits[i] = (int32_t)test_random_int(rng, 0, 1);
        parity[i] = bits[i] ^ (i % n ? parity[i - 1] : 0);
    }
}

static tn_tensor *ids_of(tn_ctx *ctx, int64_t b, int64_t n, const int32_t *v)
{
    const int64_t shape[2] = {b, n};
    return tn_tensor_from(ctx, 2, shape, TN_I32, v);
}

/* A decoder learns running parities of 8 bits, and is right for 200, in one pass and bit by bit from a state of 18
   numbers. */
TEST(a_decoder_learns_parity)
{
    enum { B = 16, N = 8, LONG = 200, D = 8 };
    tn_ctx      *ctx = ctx_threads(TN_F32, 1, NULL);
    tn_params   *ps = ctx ? tn_params_create(ctx) : NULL;
    tn_deep_desc d = ZERO;
    tn_deep      model;
    tn_optim_desc od = ZERO;
    tn_tensor   *logits;
    uint64_t     rng = 41;
    int32_t      bits[2 * LONG + B * N], parity[2 * LONG + B * N], best[2 * LONG];
    float        whole[2 * LONG * 2], step[4];
    double       apart = 0, size = 0;
    int          wrong = 0;
    REQUIRE(ps != NULL);
    d.out = 2;
    d.bond = D;
    d.vocab = 2;
    d.causal = true;
    d.head = TN_DEEP_SITES;
    CHECK_STATUS(tn_deep_init(ps, "net", &d, &model), TN_OK);
    CHECK(model.desc.layers == 2 && model.desc.dim == 2);
    CHECK(tn_params_find(ps, "net.embed.w") && tn_params_find(ps, "net.1.a") && tn_params_find(ps, "net.head.w"));
    od.lr = 0.02;
    tn_optim *optim = tn_optim_create(ps, &od);
    for (int i = 0; i < 250; i++) {
        tn_ctx_reset(ctx);
        parities(B, N, &rng, bits, parity);
        tn_record(ctx);
        logits = tn_deep_forward(ctx, &model, ids_of(ctx, B, N, bits));
        CHECK_STATUS(tn_backward(ctx, tn_cross_entropy(ctx, logits, ids_of(ctx, B, N, parity))), TN_OK);
        CHECK_STATUS(tn_optim_step(optim), TN_OK);
    }
    parities(2, LONG, &rng, bits, parity);
    logits = tn_deep_forward(ctx, &model, ids_of(ctx, 2, LONG, bits));
    tn_read(logits, TN_F32, whole, 2 * LONG * 2);
    tn_read(tn_argmax(ctx, logits), TN_I32, best, 2 * LONG);
    for (int i = 0; i < 2 * LONG; i++) wrong += best[i] != parity[i];
    CHECK_INT(wrong, 0);
    tn_tensor *state = tn_deep_state(ctx, &model, 2);
    CHECK_INT(tn_tensor_count(state), 2 * 2 * (D + 1));
    for (int i = 0; i < LONG; i++) {
        const int32_t now[2] = {bits[i], bits[LONG + i]};
        tn_read(tn_deep_decode(ctx, &model, ids_of(ctx, 2, 1, now), state), TN_F32, step, 4);
        for (int k = 0; k < 4; k++) {
            const double want = whole[(k / 2 * LONG + i) * 2 + k % 2];
            test_raise(&apart, fabs(step[k] - want));
            test_raise(&size, fabs(want));
        }
    }
    WORST("decoding against one pass", apart / size, 1e-4);
    tn_tensor_destroy(state);
    CLOSE_CTX(ctx);
}

/* A network is its parts, one after the other; gradients reach all of them. */
TEST(deep_networks_are_their_parts)
{
    tn_ctx  *ctx = ctx_threads(TN_F64, 1, NULL);
    uint64_t rng = 43;
    double   worst = 0;
    REQUIRE(ctx != NULL);
    for (int kind = 0; kind < 4; kind++) {
        tn_params   *ps = tn_params_create(ctx);
        tn_deep_desc d = ZERO;
        tn_deep      model;
        double       v[15], got[30], want[30];
        int64_t      count = kind == 1 ? 30 : 6;
        d.out = 2;
        d.bond = 3;
        d.map = kind == 0 ? TN_LOCAL_COSINE : TN_LOCAL_POWERS;
        d.dim = kind == 0 ? 0 : 3;
        d.layers = kind == 2 ? 3 : 0;
        d.head = kind == 1 ? TN_DEEP_SITES : TN_DEEP_MPS;
        d.sites = kind == 2 ? 5 : 0;
        d.boundary = kind == 3 ? TN_BOUNDARY_VECTORS : TN_BOUNDARY_CLOSED;
        d.no_residual = d.square = kind == 3;
        d.no_norm = kind == 2;
        CHECK_STATUS(tn_deep_init(ps, "", &d, &model), TN_OK);
        for (int64_t i = 0; i < 2; i++) {
            const tn_tn_attention_desc *of = &model.layer[i].desc;
            CHECK(of->unit_inputs && of->unit_weights && of->residual == (kind != 3) && of->square == (kind == 3));
            CHECK(of->norm == (kind == 2 ? TN_ROW_NORM_NONE : TN_ROW_NORM_L2) && of->sites == d.sites && of->bond == 3);
        }
        fill(v, 15, &rng);
        tn_tensor *x = tn_reshape_2d(tensor_of(ctx, 1, 3, 5, v), 3, 5);
        tn_tensor *t = tn_local_features(ctx, x, d.map, d.dim);
        for (int64_t i = 0; i < model.desc.layers; i++) t = tn_tn_attention_forward(ctx, &model.layer[i], t);
        t = kind == 1 ? tn_linear_forward(ctx, &model.linear, t) : tn_mps_forward(ctx, &model.mps, t, NULL);
        tn_read(t, TN_F64, want, count);
        tn_record(ctx);
        tn_tensor *y = tn_deep_forward(ctx, &model, x);
        tn_read(y, TN_F64, got, count);
        CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, tn_mul(ctx, y, y))), TN_OK);
        test_raise(&worst, test_frobenius(got, want, count));
        for (int64_t i = 0; i < tn_params_count(ps); i++) {
            tn_tensor *g = tn_params_at(ps, i)->value->grad;
            CHECK(g && tn_item(tn_sum(ctx, tn_mul(ctx, g, g))) > 0);
        }
        tn_ctx_reset(ctx);
        tn_params_destroy(ps);
    }
    CHECK_CTX(ctx);
    WORST("deep networks against their parts", worst, 1e-15);
    tn_ctx_destroy(ctx);
}

/* What the desc says reaches every layer and the head. */
TEST(deep_descs_reach_their_layers)
{
    tn_ctx *ctx = ctx_threads(TN_F64, 1, NULL);
    REQUIRE(ctx != NULL);
    for (int k = 0; k < 2; k++) {
        tn_params   *ps = tn_params_create(ctx);
        tn_deep_desc d = ZERO;
        tn_deep      model;
        d.out = 4;
        d.layers = 3;
        d.bond = 3;
        d.dim = 2;
        d.map = TN_LOCAL_COSINE;
        d.boundary = TN_BOUNDARY_FIRST;
        if (k) {
            d.head = TN_DEEP_SITES;
            d.causal = d.square = d.no_residual = d.no_norm = true;
            d.act = TN_ACT_SIGMOID;
        } else { d.sites = 5; d.head_bond = 7; }
        CHECK_STATUS(tn_deep_init(ps, "", &d, &model), TN_OK);
        for (int l = 0; l < 3; l++) {
            const tn_tn_attention_desc *a = &model.layer[l].desc;
            CHECK(a->in == 2 && a->out == 2 && a->bond == 3 && a->sites == (k ? 0 : 5) && a->boundary == TN_BOUNDARY_FIRST);
            CHECK(a->unit_inputs && a->unit_weights && a->square == (k == 1) && a->causal == (k == 1) && !a->bias);
            CHECK(a->residual == (k == 0) && a->norm == (k ? TN_ROW_NORM_NONE : TN_ROW_NORM_L2));
            CHECK(a->act == (k ? TN_ACT_SIGMOID : TN_ACT_NONE));
        }
        if (k) CHECK(model.linear.b != NULL && model.linear.desc.in == 2 && model.linear.desc.out == 4);
        else CHECK(model.mps.desc.bond == 7 && model.mps.desc.sites == 5 && model.mps.desc.dim == 2 && model.mps.desc.out == 4);
        tn_params_destroy(ps);
    }
    CLOSE_CTX(ctx);
}

static void deep_refused(tn_ctx *ctx, const tn_deep_desc *d, tn_status status, const char *part)
{
    tn_params *ps = tn_params_create(ctx);
    tn_deep    model;
    CHECK_STATUS(tn_deep_init(ps, "net", d, &model), status);
    CHECK_ERROR(ctx, status, part);
    CHECK(model.layer == NULL && tn_params_count(ps) == 0);
    tn_params_destroy(ps);
}

TEST(wrong_deep_networks)
{
    tn_ctx      *ctx = ctx_threads(TN_F32, 1, NULL);
    tn_params   *ps = ctx ? tn_params_create(ctx) : NULL;
    tn_deep_desc good = ZERO;
    tn_deep      model;
    double       x[4] = {1, 2, 3, 4};
    REQUIRE(ps != NULL);
    good.out = 2;
    tn_deep_desc d = good; d.out = 0;       deep_refused(ctx, &d, TN_ERR_SHAPE, "deep net: out is 0, expected 1 to 2^31 - 2");
    d = good; d.layers = -1;   deep_refused(ctx, &d, TN_ERR_SHAPE, "deep net: layers is -1, expected");
    d = good; d.layers = 9999; deep_refused(ctx, &d, TN_ERR_SHAPE, "deep net: layers is 9999, expected 0 to 1000");
    d = good; d.vocab = -1;    deep_refused(ctx, &d, TN_ERR_ARG, "deep net: vocab is -1, expected 0 or more");
    d = good; d.vocab = 3; d.map = TN_LOCAL_IDS;
    deep_refused(ctx, &d, TN_ERR_ARG, "deep net: vocab is 3, expected 0 with a map");
    d = good; d.map = (tn_local_map)5; deep_refused(ctx, &d, TN_ERR_ARG, "deep net: map is 5, not a valid tn_local_map");
    d = good; d.dim = 3;       deep_refused(ctx, &d, TN_ERR_ARG, "deep net: dim is 3, expected 2");
    d = good; d.causal = true; deep_refused(ctx, &d, TN_ERR_ARG, "deep net: head is 0, expected TN_DEEP_SITES in a causal");
    d = good; d.bond = -2;     deep_refused(ctx, &d, TN_ERR_SHAPE, "tn_attention net.0: bond is -2, expected");
    d = good; d.head_bond = -2; deep_refused(ctx, &d, TN_ERR_SHAPE, "mps net.head: bond is -2, expected");
    CHECK_STATUS(tn_deep_init(ps, "net", &good, &model), TN_OK);
    CHECK(tn_deep_state(ctx, &model, 1) == NULL);
    CHECK_ERROR(ctx, TN_ERR_ARG, "tn_attention: the layer is not causal, expected a causal uniform one for a state");
    CHECK(tn_deep_decode(ctx, &model, tn_reshape_2d(tensor_of(ctx, 1, 2, 2, x), 2, 2), tensor_of(ctx, 1, 2, 2, x)) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "deep: state is [1,2,2], expected [batch,18]");
    CHECK(tn_deep_decode(ctx, &model, tn_reshape_2d(tensor_of(ctx, 1, 2, 2, x), 2, 2),
                         tn_reshape_2d(tensor_of(ctx, 1, 2, 2, x), 2, 2)) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "deep: state is [2,2], expected [batch,18]");
    REFUSED(ctx, tn_deep_forward(ctx, NULL, NULL), TN_ERR_ARG, "deep: the layer is NULL");
    tn_ctx_destroy(ctx);
}

TEST_MAIN(sums_over_all_bonds, known_numbers, gradients, gradients_of_dominant_boundaries, square_is_linear_in_products,
          layers_are_nets, states_continue, every_elementary_automaton, rule_30, linear_attention, sum_of_permutations,
          rules_are_read_back, rules_of_any_scale, long_sequences, zero_vectors, wrong_descs, wrong_input, first_parameters,
          bf16_activations, small_extents, a_decoder_learns_parity, deep_networks_are_their_parts,
          deep_descs_reach_their_layers, wrong_deep_networks)
