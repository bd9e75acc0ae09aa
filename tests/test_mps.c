/* test_mps.c: matrix product states, as a layer and as trains. Everything is compared with plain double loops over dense
   tensors. */

#include "kit.h"

static tn_tensor *any(world *w, int rank, int64_t a, int64_t b, int64_t c, int64_t d, double std)
{
    const int64_t shape[4] = {a, b, c, d};
    return tn_normal(w->ctx, rank, shape, 0, std);
}

/* ---- the layer ---------------------------------------------------------------------------------- */

static void features_of(tn_local_map map, int64_t dim, double x, const double *given, double *phi)
{
    for (int64_t s = 0; s < dim; s++)
        phi[s] = map == TN_LOCAL_LINEAR ? (s ? x : 1 - x)
                 : map == TN_LOCAL_COSINE ? (s ? sin(1.5707963267948966 * x) : cos(1.5707963267948966 * x))
                 : map == TN_LOCAL_POWERS ? pow(x, (double)s) : map == TN_LOCAL_GIVEN ? given[s] : s == (int64_t)x;
}

/* next [D] = v [D] core, with features phi [n] */
static void site(const double *v, const double *core, const double *phi, int64_t d, int64_t n, double *next)
{
    for (int64_t b = 0; b < d; b++) next[b] = 0;
    for (int64_t a = 0; a < d; a++)
        for (int64_t s = 0; s < n; s++)
            for (int64_t b = 0; b < d; b++) next[b] += v[a] * phi[s] * core[(a * n + s) * d + b];
}

/* f(x)[c] of one input by its definition: for each start of the chain (one, or all with a trace), from left to right. */
static double value_of(const tn_mps *m, int64_t sites, int64_t place, const double *phi, int64_t c)
{
    const int64_t d = m->desc.bond, n = m->desc.dim;
    const double *cores = host(m->cores), *label = m->label ? host(m->label) : NULL;
    const double *left = m->left ? host(m->left) : NULL, *right = m->right ? host(m->right) : NULL;
    double        sum = 0, v[16], next[16], pick[16];
    for (int64_t start = 0; start < (m->desc.periodic ? d : 1); start++) {
        for (int64_t a = 0; a < d; a++) v[a] = left ? left[a] : a == start;
        for (int64_t j = 0; j <= sites; j++) {
            if (j == place && label) {
                for (int64_t k = 0; k < m->desc.out; k++) pick[k] = k == c;
                site(v, label, pick, d, m->desc.out, next);
                memcpy(v, next, sizeof v);
            }
            if (j == sites) break;
            site(v, cores + (m->desc.uniform ? 0 : j) * d * n * d, phi + j * n, d, n, next);
            memcpy(v, next, sizeof v);
        }
        for (int64_t a = 0; a < d; a++) sum += right ? v[a] * right[a] : a == start ? v[a] : 0;
    }
    return sum;
}

/* Features and their derivatives from -1 to 2, which is all of the range of the cosine. */
TEST(local_features)
{
    enum { POINTS = 301 };
    double worst[2] = {0, 0};
    for (int k = 0; k < 2 * 3; k++) {
        const tn_local_map map = (tn_local_map)(k / 2);
        const int64_t      dim = map == TN_LOCAL_POWERS ? 5 : 2, points = POINTS;
        double             v[POINTS], phi[8], grad[POINTS], size = 0, error = 0;
        world              w;
        if (!open_on(&w, k % 2 ? TN_F64 : TN_F32, 2, 1, NULL)) return;
        for (int i = 0; i < POINTS; i++) v[i] = (double)(float)(-1 + 0.01 * i);
        tn_tensor *x = tn_tensor_from(w.ctx, 1, &points, TN_F64, v);
        for (int64_t i = 0; i < dim; i++) phi[i] = 1 + (double)i;
        tn_tensor *weight = tn_tensor_from(w.ctx, 1, &dim, TN_F64, phi);
        tn_watch(x);
        tn_record(w.ctx);
        tn_tensor *y = tn_local_features(w.ctx, x, map, dim);
        if (!CHECK(y && y->rank == 2 && y->shape[1] == dim)) return;
        CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, tn_mul(w.ctx, y, weight))), TN_OK);
        memcpy(grad, host(x->grad), sizeof grad);
        for (int i = 0; i < POINTS; i++) {
            const double half = 1.5707963267948966;
            double       want = map == TN_LOCAL_LINEAR ? 1 : half * (2 * cos(half * v[i]) - sin(half * v[i]));
            features_of(map, dim, v[i], NULL, phi);
            if (map == TN_LOCAL_POWERS) want = 2 + v[i] * (6 + v[i] * (12 + v[i] * 20));
            for (int64_t j = 0; j < dim; j++) {
                if (fabs(phi[j]) > size) size = fabs(phi[j]);
                test_raise(&error, fabs(host(y)[i * dim + j] - phi[j]));
            }
            test_raise(&worst[k % 2], fabs(grad[i] - want) / (1 + fabs(want)));
        }
        test_raise(&worst[k % 2], error / size);
        close_world(&w);
    }
    WORST("local features and derivatives, F32", worst[0], 5e-6);
    WORST("local features and derivatives, F64", worst[1], 1e-14);
}

typedef struct chain {
    tn_mps     layer;
    tn_tensor *x;                               /* an owned tensor */
    int64_t    sites, place, rows;
} chain;

/* Layer number k of a list of all kinds: false if there is no such layer. */
static bool chain_of(world *w, int k, chain *c)
{
    static const int64_t sites[3] = {1, 2, 5}, dims[5] = {2, 2, 3, 3, 4};
    const int   map = k % 5, kind = k / 5 % 4, n = k / 20 % 3, place = k / 60 % 4;
    tn_mps_desc d = ZERO;
    memset(c, 0, sizeof *c);
    if (k >= 240) return false;
    d.map = (tn_local_map)map;
    d.dim = dims[map];
    d.periodic = (kind & 1) != 0;
    d.uniform = (kind & 2) != 0;
    d.sites = d.uniform && place == 0 ? 0 : sites[n];
    d.bond = 1 + k % 3;
    d.out = place == 3 ? 0 : 1 + k % 4;
    d.label = place == 1 ? (int64_t)TN_MPS_FIRST : place == 2 ? sites[n] : 0;
    d.random = k % 2 == 0;
    c->sites = sites[n];
    c->rows = 2;
    c->place = place == 1 ? 0 : place == 2 || (place == 0 && d.uniform) ? sites[n] : sites[n] / 2;
    int64_t shape[3] = {c->rows, sites[n], d.dim};
    if (!CHECK_STATUS(tn_mps_init(w->params, "m", &d, &c->layer), TN_OK)) return false;
    if (map == TN_LOCAL_IDS) {
        int32_t ids[10];
        c->x = tn_tensor_create(w->ctx, TN_I32, 2, shape);
        for (int i = 0; i < 10; i++) ids[i] = (i * 7 + k) % 4;
        tn_write(c->x, TN_I32, ids, c->rows * sites[n]);
    } else c->x = tn_tensor_keep(tn_uniform(w->ctx, map == TN_LOCAL_GIVEN ? 3 : 2, shape, -0.5, 1.5));
    return CHECK(c->x != NULL);
}

static void chain_end(world *w, chain *c)
{
    tn_ctx_reset(w->ctx);
    tn_tensor_destroy(c->x);
    tn_params_destroy(w->params);
    w->params = tn_params_create(w->ctx);
}

static void phi_of(const chain *c, int64_t row, double *phi)
{
    const int64_t n = c->layer.desc.dim;
    const double *x = host(c->x);
    for (int64_t j = 0; j < c->sites; j++)
        features_of(c->layer.desc.map, n, c->layer.desc.map == TN_LOCAL_GIVEN ? 0 : x[row * c->sites + j],
                    x + (row * c->sites + j) * n, phi + j * n);
}

TEST(layer_is_its_definition)
{
    double worst[2] = {0, 0};
    for (int f64 = 0; f64 < 2; f64++) {
        world w;
        chain c;
        if (!open_on(&w, f64 ? TN_F64 : TN_F32, 3, 1, NULL)) return;
        for (int k = 0; chain_of(&w, k, &c); k++) {
            tn_tensor    *logs, *y = tn_mps_forward(w.ctx, &c.layer, c.x, NULL), *z = tn_mps_forward(w.ctx, &c.layer, c.x, &logs);
            const int64_t out = c.layer.desc.out ? c.layer.desc.out : 1;
            double        got[8], scaled[8], log[2], phi[32], want[8], size = 0;
            if (!CHECK(y && z && logs && y->rank == (c.layer.desc.out ? 2 : 1) && tn_tensor_count(y) == 2 * out)) break;
            memcpy(got, host(y), sizeof *got * (size_t)(2 * out));
            memcpy(scaled, host(z), sizeof *scaled * (size_t)(2 * out));
            memcpy(log, host(logs), sizeof log);
            for (int64_t r = 0; r < c.rows; r++) {
                phi_of(&c, r, phi);
                for (int64_t i = 0; i < out; i++) {
                    want[r * out + i] = value_of(&c.layer, c.sites, c.place, phi, i);
                    if (fabs(want[r * out + i]) > size) size = fabs(want[r * out + i]);
                }
            }
            for (int64_t i = 0; i < 2 * out; i++) {
                test_raise(&worst[f64], fabs(got[i] - want[i]) / (1 + size));
                test_raise(&worst[f64], fabs(scaled[i] * exp(log[i / out]) - want[i]) / (1 + size));
            }
            chain_end(&w, &c);
        }
        close_world(&w);
    }
    WORST("a layer against its definition, F64", worst[1], 1e-12);
    WORST("a layer against its definition, F32", worst[0], 1e-5);
}

/* sum of y * (0.3, 0.5, ..), or of ln p */
static tn_tensor *loss_of(world *w, const chain *c, bool born)
{
    double     weight[16];
    tn_tensor *y = born ? tn_mps_log_probability(w->ctx, &c->layer, c->x) : tn_mps_forward(w->ctx, &c->layer, c->x, NULL);
    for (int i = 0; i < 16; i++) weight[i] = 0.3 + 0.2 * i;
    return y ? tn_sum(w->ctx, tn_mul(w->ctx, y, tn_tensor_from(w->ctx, y->rank, y->shape, TN_F64, weight))) : NULL;
}

static double loss_at(world *w, const chain *c, bool born)
{
    tn_ctx_reset(w->ctx);
    return tn_item(loss_of(w, c, born));
}

TEST(gradients_are_those_of_differences)
{
    double worst[2] = {0, 0};
    world  w;
    chain  c;
    if (!open_on(&w, TN_F64, 4, 1, NULL)) return;
    for (int k = 1; chain_of(&w, k, &c); k += 7) {
        const bool born = c.layer.desc.out == 0 && c.layer.desc.sites > 0;
        const int  all = (int)tn_params_count(w.params);
        CHECK_STATUS(tn_params_zero_grad(w.params), TN_OK);
        tn_ctx_reset(w.ctx);
        tn_record(w.ctx);
        if (!CHECK_STATUS(tn_backward(w.ctx, loss_of(&w, &c, born)), TN_OK)) break;
        for (int p = 0; p < all; p++) {
            tn_tensor    *v = tn_params_at(w.params, p)->value;
            const int64_t n = tn_tensor_count(v);
            double        grad[512], now[512], size = 1;
            memcpy(grad, host(v->grad), (size_t)n * sizeof *grad);
            memcpy(now, host(v), (size_t)n * sizeof *now);
            for (int64_t i = 0; i < n; i++) if (fabs(grad[i]) > size) size = fabs(grad[i]);
            for (int64_t i = 0; i < n; i += 1 + n / 9) {
                const double at = now[i], step = 1e-5;
                now[i] = at + step;
                tn_write(v, TN_F64, now, n);
                double up = loss_at(&w, &c, born);
                now[i] = at - step;
                tn_write(v, TN_F64, now, n);
                double down = loss_at(&w, &c, born);
                now[i] = at;
                tn_write(v, TN_F64, now, n);
                test_raise(&worst[born], fabs((up - down) / (2 * step) - grad[i]) / size);
            }
        }
        chain_end(&w, &c);
    }
    close_world(&w);
    WORST("gradients of values", worst[0], 1e-7);
    WORST("gradients of probabilities", worst[1], 1e-7);
}

/* The probabilities of all strings of a Born machine sum to one, and its norm is that of its train. */
TEST(born_layers_are_normalised)
{
    world w;
    double worst = 0, apart = 0;
    if (!open_on(&w, TN_F64, 5, 1, NULL)) return;
    for (int k = 0; k < 4; k++) {
        tn_mps_desc   d = ZERO;
        tn_mps        m;
        int32_t       ids[81 * 4];
        const int64_t shape[2] = {81, 4};
        double        sum = 0, norm;
        d.sites = 4; d.bond = 3; d.dim = 3; d.map = TN_LOCAL_IDS; d.random = true;
        d.periodic = (k & 1) != 0;
        d.uniform = (k & 2) != 0;
        CHECK_STATUS(tn_mps_init(w.params, k & 2 ? k & 1 ? "a" : "b" : k & 1 ? "c" : "d", &d, &m), TN_OK);
        for (int i = 0; i < 81; i++)
            for (int j = 0, v = i; j < 4; j++, v /= 3) ids[i * 4 + j] = v % 3;
        tn_tensor *x = tn_tensor_nd(w.ctx, TN_I32, 2, shape);
        tn_write(x, TN_I32, ids, 324);
        tn_tensor *y = tn_mps_log_probability(w.ctx, &m, x);
        for (int i = 0; i < 81; i++) sum += exp(host(y)[i]);
        test_raise(&worst, fabs(sum - 1));
        tn_tt *tt = tn_tt_from_mps(w.ctx, &m);
        CHECK_STATUS(tn_tt_log_norm(tt, &norm), TN_OK);
        test_raise(&apart, fabs(2 * norm - tn_item(tn_mps_log_partition(w.ctx, &m))));
        tn_tt_destroy(tt);
        d.out = 2;                                               /* with a label the sum is over its elements, too */
        d.label = k < 2 ? k : (int64_t)TN_MPS_FIRST;
        CHECK_STATUS(tn_mps_init(w.params, k & 2 ? k & 1 ? "e" : "f" : k & 1 ? "g" : "h", &d, &m), TN_OK);
        tt = tn_tt_from_mps(w.ctx, &m);
        CHECK_STATUS(tn_tt_log_norm(tt, &norm), TN_OK);
        test_raise(&apart, fabs(2 * norm - tn_item(tn_mps_log_partition(w.ctx, &m))));
        tn_tt_destroy(tt);
    }
    close_world(&w);
    WORST("sum of all probabilities", worst, 1e-12);
    WORST("norm of a layer and of its train", apart, 1e-12);
}

/* The norm of a layer with a label is that of its train, wherever the label stands. */
TEST(norms_count_the_label)
{
    double worst = 0;
    world  w;
    if (!open_on(&w, TN_F64, 25, 1, NULL)) return;
    for (int k = 0; k < 12; k++) {
        static const int64_t label[3] = {TN_MPS_FIRST, 0, 4};
        tn_mps_desc d = ZERO;
        tn_mps      m;
        char        name[16];
        double      norm;
        d.sites = 4; d.bond = 3; d.dim = 2; d.out = 3; d.random = true;
        d.periodic = (k & 1) != 0;
        d.uniform = (k & 2) != 0;
        d.label = label[k / 4];
        snprintf(name, sizeof name, "m%d", k);
        CHECK_STATUS(tn_mps_init(w.params, name, &d, &m), TN_OK);
        tn_tt *tt = tn_tt_from_mps(w.ctx, &m);
        CHECK_STATUS(tn_tt_log_norm(tt, &norm), TN_OK);
        test_raise(&worst, fabs(2 * norm - tn_item(tn_mps_log_partition(w.ctx, &m))));
        tn_tt_destroy(tt);
    }
    close_world(&w);
    WORST("norm of a layer with a label and of its train", worst, 1e-12);
}

/* What cores begin with: the identity for each feature, or for the first power, and noise; random ones and labels have the variance
   1/bond. */
TEST(first_cores)
{
    world w;
    if (!open_on(&w, TN_F64, 26, 1, NULL)) return;
    for (int k = 0; k < 3; k++) {
        tn_mps_desc d = ZERO;
        tn_mps      m;
        double      off = 0, square = 0;
        d.sites = 3; d.bond = 16; d.out = 5; d.dim = 3;
        d.map = k == 0 ? TN_LOCAL_POWERS : TN_LOCAL_GIVEN;
        d.random = k == 2;
        CHECK_STATUS(tn_mps_init(w.params, k == 0 ? "a" : k == 1 ? "b" : "c", &d, &m), TN_OK);
        int64_t rows = 3 * 16 * 3;
        for (int64_t i = 0; i < rows; i++)                   /* (site, a, s), b */
            for (int64_t b = 0; b < 16; b++) {
                const bool one = k < 2 && i / 3 % 16 == b && (k == 1 || i % 3 == 0);
                const double x = host(m.cores)[i * 16 + b] - (one ? 1 : 0);
                test_raise(&off, fabs(x));
                square += x * x / (double)(rows * 16);
            }
        CHECK(k == 2 ? fabs(square * 16 - 1) < 0.1 : off < 0.06);
        square = 0;
        for (int64_t i = 0; i < 16 * 5 * 16; i++) square += host(m.label)[i] * host(m.label)[i] / (16 * 5 * 16);
        CHECK(fabs(square * 16 - 1) < 0.15);
    }
    close_world(&w);
}

/* BF16 activations: logarithms of long chains are not rounded to it. */
TEST(bf16_activations)
{
    double got[2];
    for (int k = 0; k < 2; k++) {
        world         w;
        tn_mps_desc   d = ZERO;
        tn_mps        m;
        tn_tensor    *logs = NULL;
        const int64_t shape[2] = {1, 300};
        if (!open_as(&w, TN_F32, k ? TN_BF16 : TN_REAL, 27, 1, NULL)) return;
        d.bond = 3; d.sites = 300; d.out = 2; d.random = true;
        CHECK_STATUS(tn_mps_init(w.params, "m", &d, &m), TN_OK);
        tn_tensor *x = tn_full(w.ctx, 2, shape, 0.5);
        CHECK(tn_mps_forward(w.ctx, &m, x, &logs) != NULL && logs != NULL);
        got[k] = tn_item(logs);
        CHECK(tn_mul(w.ctx, tn_cast(w.ctx, x, k ? TN_BF16 : TN_F32), x)->dtype == (k ? TN_BF16 : TN_F32));
        close_world(&w);
    }
    CHECK(fabs(got[0]) > 1);
    CHECK_NEAR(got[1], got[0], 1e-4);
}

/* A layer of zeros has the norm 0, an input of zeros the probability 0, and no gradient is NaN. */
TEST(zero_layers)
{
    world w;
    if (!open_on(&w, TN_F32, 5, 1, NULL)) return;
    for (int k = 0; k < 4; k++) {
        const char *const name[4] = {"a", "b", "c", "d"};
        const bool  born = k == 3;                               /* not zero, but for an input of zeros */
        tn_mps_desc d = ZERO;
        tn_mps      m;
        d.sites = 3; d.bond = 2; d.random = true; d.map = TN_LOCAL_GIVEN;
        d.periodic = k == 1;
        d.uniform = k == 2;
        CHECK_STATUS(tn_mps_init(w.params, name[k], &d, &m), TN_OK);
        tn_tensor *x = any(&w, 3, 2, 3, 2, 0, 1);
        if (born) tn_assign(tn_slice(x, 0, 0, 1), tn_scale(w.ctx, tn_slice(x, 0, 0, 1), 0));
        else tn_assign(m.cores, tn_full(w.ctx, 4, m.cores->shape, 0));
        tn_record(w.ctx);
        tn_tensor *y = born ? tn_mps_log_probability(w.ctx, &m, x) : tn_mps_log_partition(w.ctx, &m);
        if (!CHECK(y != NULL && y->rank == born)) break;
        CHECK(host(y)[0] == -HUGE_VAL);
        if (born) CHECK(host(y)[1] > -100 && host(y)[1] < 100);
        CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, y)), TN_OK);
        for (int p = 0; p < (int)tn_params_count(w.params); p++) {
            tn_tensor *g = tn_params_at(w.params, p)->value->grad;
            for (int64_t i = 0; g && i < tn_tensor_count(g); i++)
                CHECK(born ? fabs(host(g)[i]) < HUGE_VAL : host(g)[i] == 0);
        }
        if (!born) {                                             /* probabilities do not exist, values do */
            y = tn_mps_log_probability(w.ctx, &m, x);
            CHECK(host(y)[0] != host(y)[0]);
            y = tn_mps_forward(w.ctx, &m, x, NULL);
            CHECK(host(y)[0] == 0 && host(y)[1] == 0);
        }
        tn_ctx_reset(w.ctx);
    }
    close_world(&w);
}

/* f(x) of 1e-25 whose square is no F32: the probability is what it is. */
TEST(small_values)
{
    const float   v[16] = {0, 1e-25f, 1, 0};                     /* (0,1e-25) and (1,0) of row 0, then rows of 1 */
    const int32_t ids[4] = {0, 0, 1, 0};
    const int64_t shape[2] = {2, 2};
    world       w;
    tn_mps_desc d = ZERO;
    tn_mps      m;
    tn_tensor  *logs;
    float       cores[16];
    if (!open_on(&w, TN_F32, 5, 1, NULL)) return;
    d.sites = 2; d.bond = 2; d.map = TN_LOCAL_IDS;
    CHECK_STATUS(tn_mps_init(w.params, "m", &d, &m), TN_OK);
    memcpy(cores, v, sizeof cores);
    cores[0] = 1;                                                /* id 0: e_0 + 1e-25 e_1 */
    cores[8] = 0; cores[10] = 1; cores[12] = 1; cores[14] = 0;   /* the second core takes e_1 for id 0, e_0 for id 1 */
    tn_write(m.cores, TN_F32, cores, 16);
    tn_tensor *x = tn_tensor_nd(w.ctx, TN_I32, 2, shape);
    tn_write(x, TN_I32, ids, 4);
    CHECK_NEAR(host(tn_mps_forward(w.ctx, &m, x, &logs))[0], 1e-25, 1e-31);
    CHECK_NEAR(host(tn_mps_log_probability(w.ctx, &m, x))[0], 2 * log(1e-25) - log(2), 1e-4);
    close_world(&w);
}

/* A batch so large that a backend computes groups of its rows at once: y and logs, then the gradients of cores, label and x.
   Row 3 has a site whose features are 0, row 18 features of 1e-25 and 1e25, row 20 several small ones in a row, and the last
   row, with `broken`, one that is no number. Returns how many numbers it has stored. */
enum { ROWS_OUT = 3, ROWS_MOST = 60000 };
typedef struct rows_case { int64_t rows, sites, bond, dim, label; bool watched, frozen; } rows_case;

static int64_t rows_of(const rows_case *r, tn_dtype dtype, int threads, const tn_backend *backend, bool broken, double *to)
{
    world         w;
    tn_mps_desc   desc = ZERO;
    tn_mps        m;
    tn_tensor    *logs = NULL, *all[5] = {NULL, NULL, NULL, NULL, NULL};
    const int64_t shape[3] = {r->rows, r->sites, r->dim};
    int64_t       count = 0, n = r->rows * r->sites * r->dim, k = 0;
    if (!open_on(&w, dtype, 1, threads, backend)) return 0;
    desc.sites = r->sites; desc.bond = r->bond; desc.dim = r->dim; desc.out = ROWS_OUT; desc.map = TN_LOCAL_GIVEN;
    desc.label = r->label;
    CHECK_STATUS(tn_mps_init(w.params, "m", &desc, &m), TN_OK);
    if (r->frozen) tn_params_freeze(w.params, "m.cores");
    const int64_t size = tn_tensor_count(m.cores);
    double       *v = doubles(n + size + r->rows * ROWS_OUT);
    for (k = 0; k < size; k++) v[k] = (double)(k * 7919 % 1009) / 1009 - 0.25;
    CHECK_STATUS(tn_write(m.cores, TN_F64, v, size), TN_OK);
    for (k = 0; k < n; k++) v[k] = (double)(k * 104729 % 997) / 997 - 0.1;
    for (k = 0; k < r->dim && r->rows > 20 && r->sites > 12; k++) {
        v[(3 * r->sites + 5) * r->dim + k] = 0;
        v[(18 * r->sites + 6) * r->dim + k] *= 1e-25;
        v[(18 * r->sites + 11) * r->dim + k] *= 1e25;
        for (int64_t j = 1; j < 4; j++) v[(20 * r->sites + j) * r->dim + k] *= 1e-12;
    }
    if (broken) v[n - 1] = NAN;
    tn_tensor *x = tn_tensor_from(w.ctx, 3, shape, TN_F64, v);
    if (r->watched) tn_watch(x);
    CHECK_STATUS(tn_params_zero_grad(w.params), TN_OK);
    tn_record(w.ctx);
    tn_tensor *y = tn_mps_forward(w.ctx, &m, x, &logs);
    if (!CHECK(y && logs)) return close_world(&w), 0;
    for (k = 0; k < r->rows * ROWS_OUT; k++) v[k] = 0.5 + 0.1 * (double)(k % 7);
    tn_tensor *loss = tn_sum(w.ctx, tn_mul(w.ctx, y, tn_tensor_from(w.ctx, 2, y->shape, TN_F64, v)));
    loss = tn_add(w.ctx, loss, tn_scale(w.ctx, tn_sum(w.ctx, logs), 0.01));       /* that of row 3 is -inf */
    CHECK_STATUS(tn_backward(w.ctx, loss), TN_OK);
    all[0] = y; all[1] = logs; all[2] = m.label->grad; all[3] = m.cores->grad; all[4] = x->grad;
    for (int i = 0; i < 5; i++) {
        const int64_t each = all[i] ? tn_tensor_count(all[i]) : 0;
        if (each == 0) continue;
        if (CHECK(count + each <= ROWS_MOST)) memcpy(to + count, host(all[i]), (size_t)each * sizeof *to);
        count += each;
    }
    close_world(&w);
    return count;
}

TEST(a_large_batch_is_its_rows)
{
    static const rows_case of[] = {{8, 5, 3, 2, 0, true, false}, {37, 21, 10, 2, 0, false, false}, {37, 21, 10, 2, 21, true, false},
                                   {21, 30, 17, 3, TN_MPS_FIRST, true, false}, {40, 14, 5, 1, 9, true, true},
                                   {150, 9, 4, 2, TN_MPS_FIRST, true, false}, {32, 1, 1, 2, 0, true, false}};
    double *want = doubles(ROWS_MOST), *got = doubles(ROWS_MOST), worst[2] = {0, 0};
    for (size_t c = 0; c < sizeof of / sizeof *of; c++) {
        const int64_t n = rows_of(&of[c], TN_F64, 1, NULL, false, want);
        for (int how = 0; how < 3; how++) {
            const int64_t b = of[c].rows, values = b * (ROWS_OUT + 1);
            const tn_backend *backend = how == 2 ? tn_reference_backend() : NULL;
            double size = 1;
            CHECK(rows_of(&of[c], TN_F32, how == 1 ? 3 : 1, backend, false, got) == n);
            for (int64_t i = values; i < n; i++) if (fabs(want[i]) > size) size = fabs(want[i]);
            for (int64_t i = 0; i < n; i++) {
                if (i < values && want[i] < -1e300) CHECK(got[i] == want[i]);
                else if (i < values) test_raise(&worst[0], fabs(got[i] - want[i]) / (1 + fabs(want[i])));
                else test_raise(&worst[1], fabs(got[i] - want[i]) / size);
            }
        }
    }
    WORST("a large batch", worst[0], 1e-5);
    WORST("its gradients", worst[1], 1e-4);
}

/* Results do not depend on the number of threads, and a NaN stays in its row. */
TEST(a_large_batch_on_threads)
{
    static const rows_case of = {37, 21, 10, 2, 9, true, false};
    double       *one = doubles(ROWS_MOST), *more = doubles(ROWS_MOST);
    const int64_t n = rows_of(&of, TN_F32, 1, NULL, false, one), values = (of.rows - 1) * ROWS_OUT;
    for (int threads = 2; threads < 8; threads += 5) {
        CHECK(rows_of(&of, TN_F32, threads, NULL, false, more) == n);
        CHECK(memcmp(one, more, sizeof *one * (size_t)n) == 0);
    }
    rows_of(&of, TN_F32, 1, NULL, true, more);                   /* the rows of its group are scaled more often */
    for (int64_t i = 0; i < values; i++) CHECK_NEAR(more[i], one[i], 1e-4);
    CHECK(more[values] != more[values]);
}

/* 100,000 sites: the logarithm is that of a long sum, and logits are finite. */
TEST(long_chains_are_finite)
{
    world       w;
    tn_mps_desc d = ZERO;
    tn_mps      m;
    tn_tensor  *logs;
    int64_t     n = 100000;
    double      worst = 0;
    if (!open_on(&w, TN_F32, 6, 1, NULL)) return;
    d.bond = 2; d.out = 2; d.uniform = true;
    CHECK_STATUS(tn_mps_init(w.params, "m", &d, &m), TN_OK);
    {
        const float core[8] = {3, 0, 3, 0, 0, 1, 0, 1}, one[4] = {1, 0, 1, 0}, label[8] = {1, 0, -2, 0, 0, 0, 0, 0};
        tn_write(m.cores, TN_F32, core, 8);
        tn_write(m.left, TN_F32, one, 2);
        tn_write(m.right, TN_F32, one, 2);
        tn_write(m.label, TN_F32, label, 8);
    }
    for (double per = 3; per > 0.3; per -= 2.5, n = 100000) {    /* 3^100000, then 0.5^100000 */
        const float core[8] = {(float)per, 0, (float)per, 0, 0, 0.25f, 0, 0.25f};
        const int64_t shape[2] = {1, n};
        tn_write(m.cores, TN_F32, core, 8);
        tn_ctx_reset(w.ctx);
        tn_tensor *x = tn_uniform(w.ctx, 2, shape, 0, 1);
        tn_tensor *y = tn_mps_forward(w.ctx, &m, x, &logs);
        test_raise(&worst, fabs((tn_item(logs) + log(fabs(host(y)[0]))) / ((double)n * log(per)) - 1));
        y = tn_mps_forward(w.ctx, &m, x, NULL);
        CHECK(per > 1 ? host(y)[0] > 1e34 && host(y)[1] < -1e34 && host(y)[1] > -HUGE_VAL : host(y)[0] == 0);
    }
    close_world(&w);
    WORST("logarithm of 100,000 sites, F32", worst, 1e-4);
}

TEST(layers_refuse)
{
    world       w;
    tn_mps_desc d = ZERO;
    tn_mps      m;
    if (!open_on(&w, TN_F64, 6, 1, NULL)) return;
    d.bond = 2; d.out = 2;
    FAILS(w.ctx, tn_mps_init(w.params, "m", &d, &m), TN_ERR_SHAPE, "mps m: sites is 0, expected 1 to 2^31 - 2");
    d.sites = 3;
    d.label = 4;
    CHECK_STATUS(tn_mps_init(w.params, "m", &d, &m), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "mps m: label is 4, expected 1 to 3 sites before it, 0 for the default, or TN_MPS_FIRST");
    d.label = -2;
    FAILS(w.ctx, tn_mps_init(w.params, "m", &d, &m), TN_ERR_ARG, "mps m: label is -2");
    d.label = 0;
    d.dim = 3;
    FAILS(w.ctx, tn_mps_init(w.params, "m", &d, &m), TN_ERR_ARG, "mps m: dim is 3, expected 2");
    d.dim = 0;
    d.std = -1;
    FAILS(w.ctx, tn_mps_init(w.params, "m", &d, &m), TN_ERR_ARG, "mps m: std is -1, expected 0 or more");
    d.std = 0;
    CHECK_INT(tn_params_count(w.params), 0);
    d.sites = 0;
    d.uniform = true;
    d.label = 3;
    CHECK_STATUS(tn_mps_init(w.params, "any", &d, &m), TN_OK);      /* of any length from 3 on */
    CHECK(tn_mps_forward(w.ctx, &m, any(&w, 2, 4, 3, 0, 0, 1), NULL) != NULL);
    CHECK(!tn_mps_forward(w.ctx, &m, any(&w, 2, 4, 2, 0, 0, 1), NULL));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "mps: x is [4,2], expected [b,n] with n >= 3");
    d.sites = 3;
    d.uniform = false;
    d.label = 0;
    CHECK_STATUS(tn_mps_init(w.params, "m", &d, &m), TN_OK);
    REFUSED(w.ctx, tn_mps_forward(w.ctx, &m, any(&w, 2, 4, 2, 0, 0, 1), NULL), TN_ERR_SHAPE, "mps: x is [4,2], expected [b,3]");
    d.sites = 0;
    d.label = 4;
    d.uniform = true;
    CHECK_STATUS(tn_mps_init(w.params, "uniform", &d, &m), TN_OK);
    CHECK(!tn_mps_forward(w.ctx, &m, any(&w, 2, 2, 3, 0, 0, 1), NULL));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "mps: x is [2,3], expected [b,n] with n >= 4");
    CHECK(tn_mps_forward(w.ctx, &m, any(&w, 2, 2, 4, 0, 0, 1), NULL) != NULL);
    REFUSED(w.ctx, tn_mps_log_partition(w.ctx, &m), TN_ERR_ARG, "mps_log_partition: sites is 0, expected a number of sites");
    CHECK(!tn_mps_log_probability(w.ctx, &m, any(&w, 2, 4, 3, 0, 0, 1)));
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "mps_log_probability: out is 2, expected 0");
    CHECK(!tn_local_features(w.ctx, any(&w, 2, 4, 3, 0, 0, 1), TN_LOCAL_GIVEN, 2));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "local_features: x is [4,3], expected 2 features on its last axis");
    CHECK(!tn_local_features(w.ctx, any(&w, 1, 4, 0, 0, 0, 1), TN_LOCAL_POWERS, 65));
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "local_features: dim is 65, expected 1 to 64");
    close_world(&w);
}

/* ---- trains ------------------------------------------------------------------------------------- */

/* A random train of bonds up to `rank`, not normalised and in no canonical form. */
static tn_tt *train(world *w, int64_t count, const int64_t *extents, int64_t rank)
{
    tn_tensor *core[16];
    for (int64_t k = 0; k < count; k++)
        core[k] = any(w, 3, k == 0 ? 1 : rank, extents[k], k + 1 == count ? 1 : rank, 0, 1);
    tn_tt *tt = tn_tt_create(w->ctx, count, core);
    CHECK(tt != NULL);
    return tt;
}

/* The dense numbers of a train, in a buffer as that of host() */
static const double *dense(const tn_tt *tt, int64_t *n)
{
    tn_tensor    *t = tn_tt_dense(tt);
    const double *p = host(t);
    *n = t ? tn_tensor_count(t) : 0;
    tn_tensor_destroy(t);
    return p;
}

static double distance(const tn_tt *a, const tn_tt *b, double factor)
{
    int64_t       n, m;
    const double *x = dense(a, &n), *y = dense(b, &m);
    double        sum = 0, size = 0;
    if (!CHECK_INT(n, m)) return HUGE_VAL;
    for (int64_t i = 0; i < n; i++) {
        sum += (x[i] - factor * y[i]) * (x[i] - factor * y[i]);
        size += x[i] * x[i];
    }
    return sqrt(sum / size);
}

/* How far the cores around a site are from orthonormal, and its own norm from `size`. */
static double from_canonical(const tn_tt *tt, int64_t site_, double size)
{
    double worst = 0;
    for (int64_t k = 0; k < tt->count; k++) {
        const int64_t *n = tt->core[k]->shape;
        const double  *g = host(tt->core[k]);
        double         norm = 0;
        for (int64_t i = 0; i < n[0] * n[1] * n[2]; i++) norm += g[i] * g[i];
        if (k == site_) test_raise(&worst, fabs(sqrt(norm) / size - 1));
        else for (int64_t a = 0; a < (k < site_ ? n[2] : n[0]); a++)
            for (int64_t b = 0; b < (k < site_ ? n[2] : n[0]); b++) {
                double sum = 0;
                if (k < site_) for (int64_t i = 0; i < n[0] * n[1]; i++) sum += g[i * n[2] + a] * g[i * n[2] + b];
                else for (int64_t i = 0; i < n[1] * n[2]; i++) sum += g[a * n[1] * n[2] + i] * g[b * n[1] * n[2] + i];
                test_raise(&worst, fabs(sum - (a == b)));
            }
    }
    return worst;
}

TEST(layers_and_trains_are_the_same_chain)
{
    double worst = 0;
    world  w;
    chain  c;
    if (!open_on(&w, TN_F64, 7, 1, NULL)) return;
    for (int k = 0; chain_of(&w, k, &c); k++) {
        const tn_mps_desc *d = &c.layer.desc;
        double     phi[20], sum;
        if (d->sites == 0) { chain_end(&w, &c); continue; }
        tn_tt *tt = tn_tt_from_mps(w.ctx, &c.layer);
        if (!CHECK(tt && tt->count == d->sites + (d->out > 0))) break;
        for (int i = 0; i < 6; i++) {                       /* some strings: unit vectors, so elements of the train */
            int64_t index[6], at = 0;
            const int64_t label = i % (d->out ? d->out : 1);
            for (int64_t j = 0; j < d->sites; j++) {
                const int64_t e = (i * 5 + j * (i + 1)) % d->dim;
                if (d->out && j == c.place) index[at++] = label;
                index[at++] = e;
                for (int64_t s = 0; s < d->dim; s++) phi[j * d->dim + s] = s == e;
            }
            if (d->out && at < tt->count) index[at] = label;
            CHECK_STATUS(tn_tt_elements(tt, 1, index, &sum), TN_OK);
            test_raise(&worst, fabs(sum - value_of(&c.layer, c.sites, c.place, phi, label)) / (1 + fabs(sum)));
        }
        tn_tt_destroy(tt);
        chain_end(&w, &c);
    }
    WORST("a train against its layer", worst, 1e-12);
    close_world(&w);
}

/* Into a layer whose bonds are larger, and back; what pads the cores has no gradient. */
TEST(trains_go_into_layers)
{
    static const int64_t extents[5] = {2, 2, 3, 2, 2};
    world       w;
    tn_mps_desc d = ZERO;
    tn_mps      m;
    double      outside = 0;
    if (!open_on(&w, TN_F64, 8, 1, NULL)) return;
    d.sites = 4; d.bond = 5; d.out = 3;
    CHECK_STATUS(tn_mps_init(w.params, "m", &d, &m), TN_OK);
    for (int p = 0; p < 2; p++) CHECK(tn_params_at(w.params, p)->decay_scale == 0 && tn_params_at(w.params, p)->adamw);
    tn_tt *tt = train(&w, 5, extents, 3);
    CHECK_STATUS(tn_mps_assign_tt(&m, tt), TN_OK);
    tn_tt *back = tn_tt_from_mps(w.ctx, &m);
    WORST("train, layer, train", distance(tt, back, 1), 1e-13);
    tn_record(w.ctx);
    CHECK_STATUS(tn_backward(w.ctx, tn_sum(w.ctx, tn_mps_forward(w.ctx, &m, any(&w, 2, 7, 4, 0, 0, 1), NULL))), TN_OK);
    for (int64_t j = 0; j < 4; j++)
        for (int64_t a = 0; a < 5; a++)
            for (int64_t i = 0; i < 10; i++) {
                const int64_t b = i % 5;
                if (a < (j ? 3 : 1) && b < (j < 3 ? 3 : 1)) continue;
                test_raise(&outside, fabs(host(m.cores->grad)[(j * 5 + a) * 10 + i]));
            }
    CHECK(outside == 0);
    tn_tt_destroy(back);
    back = tn_tt_add(tt, tt);                                /* bonds of 6 */
    CHECK_STATUS(tn_mps_assign_tt(&m, back), TN_ERR_SHAPE);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "mps_assign_tt: core 0 is [1,2,6], expected 2 elements and bonds up to 5");
    FAILS(w.ctx, tn_mps_assign_tt(&m, NULL), TN_ERR_ARG, "mps_assign_tt: the train is NULL");
    FAILS(w.ctx, tn_mps_assign_tt(NULL, tt), TN_ERR_ARG, "mps_assign_tt: the layer's core is NULL");
    tn_tt_destroy(back);
    back = tn_tt_from_mps(w.ctx, &m);
    WORST("a layer that refused a train", distance(tt, back, 1), 1e-13);
    tn_tt_destroy(tt);
    tn_tt_destroy(back);
    close_world(&w);
}

TEST(canonical_forms)
{
    static const int64_t extents[6] = {3, 2, 4, 2, 1, 3};
    world  w;
    double form = 0, same = 0, logs = 0;
    if (!open_on(&w, TN_F64, 9, 1, NULL)) return;
    for (int64_t count = 1; count <= 6; count++)
        for (int64_t rank = 1; rank <= 7; rank += 3) {
            tn_tt *tt = train(&w, count, extents, rank);
            double norm, ln, inner, sign;
            CHECK_STATUS(tn_tt_norm(tt, &norm), TN_OK);
            CHECK_STATUS(tn_tt_log_norm(tt, &ln), TN_OK);
            test_raise(&logs, fabs(ln - log(norm)));
            for (int64_t k = 0; k < count; k++) {
                double log_norm;
                tn_tt *c = tn_tt_canonical(tt, k, &log_norm), *d = tn_tt_canonical(tt, k, NULL);
                if (!CHECK(c && d)) return;
                test_raise(&form, from_canonical(c, k, 1));
                test_raise(&same, distance(tt, d, 1));
                test_raise(&same, distance(tt, c, exp(log_norm)));
                test_raise(&logs, fabs(ln - log_norm));
                CHECK_STATUS(tn_tt_log_inner(tt, d, &inner, &sign), TN_OK);
                test_raise(&logs, fabs(inner - 2 * ln));
                CHECK(sign == 1);
                tn_tt_destroy(c);
                c = tn_tt_scale(d, -1);
                CHECK_STATUS(tn_tt_log_inner(tt, c, &inner, &sign), TN_OK);
                CHECK(sign == -1);
                tn_tt_destroy(c);
                tn_tt_destroy(d);
            }
            tn_tt_destroy(tt);
        }
    close_world(&w);
    WORST("conditions of canonical forms", form, 1e-12);
    WORST("canonical forms against the train", same, 1e-12);
    WORST("logarithms of norms and inner products", logs, 1e-12);
}

/* 3,000 sites whose norm is 10^6000: logarithms and canonical forms still work, in F32 as well; a train of zeros. */
TEST(norms_have_no_range)
{
    world     w;
    const int64_t shape[3] = {1, 2, 1};
    static tn_tensor *core[3000];
    if (!open_on(&w, TN_F32, 9, 1, NULL)) return;
    for (int i = 0; i < 2; i++) {
        const float v[2] = {i ? 60.0f : 0, i ? 80.0f : 0};
        tn_tensor  *t = tn_tensor_from(w.ctx, 3, shape, TN_F32, v);
        double      ln, sign, inner;
        for (int k = 0; k < 3000; k++) core[k] = t;
        tn_tt *tt = tn_tt_create(w.ctx, 3000, core);
        CHECK_STATUS(tn_tt_log_norm(tt, &ln), TN_OK);
        tn_tt     *c = tn_tt_canonical(tt, 2999, &inner);
        tn_tensor *e = tn_tt_entropies(tt), *s = tn_tt_singular_values(tt);
        CHECK(c && e && host(e)[77] == 0 && s && fabs(host(s)[77] - i) < 1e-6);
        tn_tensor_destroy(s);
        if (i) CHECK(fabs(ln - 3000 * log(100)) < 1e-9 && fabs(inner - ln) < 1e-9);
        else CHECK(ln == -HUGE_VAL && inner == -HUGE_VAL);
        CHECK_STATUS(tn_tt_log_inner(tt, c, &inner, &sign), TN_OK);
        if (i) CHECK(sign == 1 && fabs(inner - ln) < 1e-2);
        else CHECK(sign == 0 && inner == -HUGE_VAL);
        tn_tensor_destroy(e);
        tn_tt_destroy(c);
        tn_tt_destroy(tt);
    }
    close_world(&w);
}

/* Even parity (or its opposite, GHZ): one bit passes each cut. */
TEST(parity_and_ghz_have_one_bit)
{
    double worst = 0, values = 0;
    world  w;
    if (!open_on(&w, TN_F64, 10, 1, NULL)) return;
    for (int ghz = 0; ghz < 2; ghz++) {
        tn_tensor *core[9];
        for (int k = 0; k < 9; k++) {
            const int64_t r = k ? 2 : 1, c = k < 8 ? 2 : 1, shape[3] = {r, 2, c};
            double v[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            for (int64_t a = 0; a < r; a++)
                for (int64_t i = 0; i < 2; i++)
                    for (int64_t b = 0; b < c; b++)
                        v[(a * 2 + i) * c + b] = ghz ? (k == 0 || i == a) && (k == 8 || i == b) : k == 8 ? a == i : b == (a ^ i);
            core[k] = tn_tensor_from(w.ctx, 3, shape, TN_F64, v);
        }
        tn_tt     *tt = tn_tt_create(w.ctx, 9, core);
        tn_tensor *e = tn_tt_entropies(tt), *s = tn_tt_singular_values(tt);
        for (int k = 0; k < 8; k++) test_raise(&worst, fabs(host(e)[k] - log(2)));
        for (int k = 0; k < 16; k++) test_raise(&values, fabs(host(s)[k] - sqrt(0.5)));
        tn_tensor_destroy(e);
        tn_tensor_destroy(s);
        tn_tt_destroy(tt);
    }
    close_world(&w);
    WORST("entropy of one bit", worst, 1e-14);
    WORST("its singular values", values, 1e-14);
}

/* Against the SVD of the dense unfoldings. */
TEST(spectra_are_those_of_the_unfoldings)
{
    static const int64_t extents[5] = {2, 3, 2, 2, 3};
    world      w;
    double     worst = 0, entropies = 0, norm;
    int64_t    rows = 1;
    if (!open_on(&w, TN_F64, 11, 1, NULL)) return;
    tn_tt *tt = train(&w, 2, extents + 1, 3);                       /* of two axes: one bond, of both extents at most */
    tn_tensor *s = tn_tt_singular_values(tt);
    CHECK(s && s->rank == 2 && s->shape[0] == 1 && s->shape[1] == 2);
    tn_tensor_destroy(s);
    tn_tt_destroy(tt);
    tt = train(&w, 5, extents, 3);
    s = tn_tt_singular_values(tt);
    tn_tensor *e = tn_tt_entropies(tt);
    tn_tensor *full = tn_tt_dense(tt);
    CHECK_STATUS(tn_tt_norm(tt, &norm), TN_OK);
    for (int64_t k = 0; k < 4; k++) {
        tn_svd_result r;
        double        entropy = 0;
        rows *= extents[k];
        CHECK_STATUS(tn_svd(w.ctx, tn_reshape_2d(full, rows, 72 / rows), NULL, &r), TN_OK);
        for (int64_t i = 0; i < tn_tensor_count(r.s); i++) {
            const double x = host(r.s)[i] / norm;
            test_raise(&worst, fabs((i < s->shape[1] ? host(s)[k * s->shape[1] + i] : 0) - x));
            if (x > 1e-9) entropy -= x * x * log(x * x);
        }
        test_raise(&entropies, fabs(entropy - host(e)[k]));
        tn_svd_destroy(&r);
    }
    tn_tensor_destroy(full);
    tn_tensor_destroy(e);
    tn_tensor_destroy(s);
    tn_tt_destroy(tt);
    close_world(&w);
    WORST("Schmidt values against dense", worst, 1e-13);
    WORST("entropies against dense", entropies, 1e-12);
}

TEST(discarded_weight_is_the_dense_error)
{
    static const int64_t extents[6] = {2, 3, 2, 4, 2, 3};
    world  w;
    double worst = 0;
    if (!open_on(&w, TN_F64, 12, 1, NULL)) return;
    for (int k = 0; k < 6; k++) {
        static const double cut[6] = {0.9, 0.5, 0.3, 0.1, 1e-3, 1e-9};
        tn_tt     *tt = train(&w, 6, extents, 5);
        tn_tt_desc d = ZERO;
        d.relative = cut[k];
        tn_tt *less = tn_tt_round(tt, &d);
        double gap = distance(tt, less, 1);
        test_raise(&worst, fabs(less->discarded - gap * gap));
        CHECK(k > 3 ? less->discarded < 1e-5 : k > 2 || (less->discarded > 0 && less->core[2]->shape[0] < 5));
        CHECK(less->discarded == less->error * less->error);
        tn_tt_destroy(less);
        tn_tt_destroy(tt);
    }
    close_world(&w);
    WORST("discarded weight against the dense error", worst, 1e-13);
}

TEST(samples_follow_the_square)
{
    static const int64_t extents[4] = {3, 2, 4, 2};
    enum { SAMPLES = 40000 };
    static int64_t index[SAMPLES * 4 + 200];
    static double  ln[48 * 4];
    world   w;
    double  p[48], sum = 0, worst = 0, conditional = 0, chi = 0, got[4];
    int64_t n, all[48 * 4], count[48];
    if (!open_on(&w, TN_F64, 13, 1, NULL)) return;
    tn_tt *tt = train(&w, 4, extents, 3);
    memcpy(p, dense(tt, &n), sizeof p);
    CHECK_INT(n, 48);
    for (int64_t i = 0; i < 48; i++) sum += p[i] *= p[i];
    for (int64_t i = 0; i < 48; i++) {
        int64_t rest = i;
        p[i] /= sum;
        for (int64_t k = 4; k-- > 0; rest /= extents[k]) all[i * 4 + k] = rest % extents[k];
        count[i] = 0;
    }
    CHECK_STATUS(tn_tt_log_conditionals(tt, 48, all, ln), TN_OK);
    for (int64_t i = 0; i < 48; i++)
        test_raise(&worst, fabs(ln[4 * i] + ln[4 * i + 1] + ln[4 * i + 2] + ln[4 * i + 3] - log(p[i])));
    for (int64_t k = 0; k < 4; k++)
        for (int64_t i = 0; i < 48; i += 5) {
            CHECK_STATUS(tn_tt_conditional(tt, k, all + 4 * i, got), TN_OK);
            test_raise(&conditional, fabs(got[all[4 * i + k]] - exp(ln[4 * i + k])));
            for (sum = 0, n = 0; n < extents[k]; n++) sum += got[n];
            test_raise(&conditional, fabs(sum - 1));
        }
    CHECK_STATUS(tn_tt_sample(tt, 50, 0, 6, index), TN_OK);
    CHECK_STATUS(tn_tt_sample(tt, SAMPLES, 0, 5, index + 200), TN_OK);
    CHECK(memcmp(index, index + 200, 200 * sizeof *index) != 0);        /* the seed decides, and nothing else */
    CHECK_STATUS(tn_tt_sample(tt, 50, 0, 5, index), TN_OK);
    CHECK(memcmp(index, index + 200, 200 * sizeof *index) == 0);
    CHECK_STATUS(tn_tt_sample(tt, SAMPLES, 0, 5, index), TN_OK);
    for (int64_t i = 0; i < SAMPLES; i++) {
        const int64_t *x = index + 4 * i;
        count[((x[0] * 2 + x[1]) * 4 + x[2]) * 2 + x[3]]++;
    }
    for (int64_t i = 0; i < 48; i++) chi += pow((double)count[i] - SAMPLES * p[i], 2) / (SAMPLES * p[i]);
    WORST("chi squared of 47 degrees of freedom", chi, 90);     /* one in 7,000 is larger */
    for (int64_t i = 0; i < 100; i++) { index[4 * i] = 2; index[4 * i + 1] = 1; }
    CHECK_STATUS(tn_tt_sample(tt, 100, 2, 6, index), TN_OK);
    for (int64_t i = 0; i < 100; i++)
        CHECK(index[4 * i] == 2 && index[4 * i + 1] == 1 && index[4 * i + 2] < 4 && index[4 * i + 3] >= 0);
    index[0] = 3;
    FAILS(w.ctx, tn_tt_conditional(tt, 1, index, got), TN_ERR_DATA, "tt_conditional: index 0 is 3, expected 0 to 2");
    FAILS(w.ctx, tn_tt_conditional(tt, 4, index, got), TN_ERR_ARG, "tt_conditional: known is 4, expected 0 to 3");
    FAILS(w.ctx, tn_tt_log_conditionals(tt, 1, NULL, ln), TN_ERR_ARG, "tt_log_conditionals: index is NULL, expected numbers");
    CHECK_STATUS(tn_tt_log_conditionals(tt, 1, index, NULL), TN_ERR_ARG);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "tt_log_conditionals: the result is NULL, expected numbers");
    FAILS(w.ctx, tn_tt_sample(tt, 1, 5, 5, index), TN_ERR_ARG, "tt_sample: known is 5, expected 0 to 4");
    tn_tt_destroy(tt);
    close_world(&w);
    WORST("ln p against dense", worst, 1e-12);
    WORST("conditionals", conditional, 1e-13);
}

/* An amplitude of 1e-170, whose probability no double holds: it has a logarithm, and is a possible condition. */
TEST(small_probabilities)
{
    const int64_t first[3] = {1, 2, 2}, second[3] = {2, 2, 1}, index[2] = {1, 0};
    const double  v[4] = {1, 0, 0, 1e-170}, u[4] = {1, 0, 3, 4};
    world      w;
    tn_tensor *core[2];
    double     ln[2], p[2];
    int64_t    got[2] = {1, -1};
    if (!open_on(&w, TN_F64, 13, 1, NULL)) return;
    core[0] = tn_tensor_from(w.ctx, 3, first, TN_F64, v);
    core[1] = tn_tensor_from(w.ctx, 3, second, TN_F64, u);
    tn_tt *tt = tn_tt_create(w.ctx, 2, core);
    CHECK_STATUS(tn_tt_log_conditionals(tt, 1, index, ln), TN_OK);
    CHECK_NEAR(ln[0], 2 * log(5e-170), 1e-10);
    CHECK_NEAR(ln[1], 2 * log(0.6), 1e-13);
    CHECK_STATUS(tn_tt_conditional(tt, 1, index, p), TN_OK);
    CHECK_NEAR(p[0], 0.36, 1e-14);
    CHECK_NEAR(p[1], 0.64, 1e-14);
    CHECK_STATUS(tn_tt_sample(tt, 1, 1, 1, got), TN_OK);
    CHECK(got[0] == 1 && (got[1] == 0 || got[1] == 1));
    tn_tt_destroy(tt);
    close_world(&w);
}

/* Strings of even parity: what is impossible has probability 0. */
TEST(impossible_strings)
{
    const int64_t one[3] = {1, 2, 1}, index[3] = {0, 1, 0};
    const double  v[2] = {1, 0};
    world      w;
    tn_tensor *core[3];
    double     ln[3], p[2];
    int64_t    got[6];
    if (!open_on(&w, TN_F64, 13, 1, NULL)) return;
    for (int k = 0; k < 3; k++) core[k] = tn_tensor_from(w.ctx, 3, one, TN_F64, v);
    tn_tt *tt = tn_tt_create(w.ctx, 3, core);
    CHECK_STATUS(tn_tt_log_conditionals(tt, 1, index, ln), TN_OK);
    CHECK(ln[0] == 0 && ln[1] == -HUGE_VAL && ln[2] == -HUGE_VAL);
    CHECK_STATUS(tn_tt_sample(tt, 2, 0, 1, got), TN_OK);
    for (int k = 0; k < 6; k++) CHECK_INT(got[k], 0);
    CHECK_STATUS(tn_tt_conditional(tt, 2, index, p), TN_ERR_DATA);
    CHECK_ERROR(w.ctx, TN_ERR_DATA, "tt_conditional: the first 2 indices have probability 0, expected a possible condition");
    tn_tt_destroy(tt);
    for (int k = 0; k < 3; k++) core[k] = tn_scale(w.ctx, core[k], 0);
    tt = tn_tt_create(w.ctx, 3, core);
    FAILS(w.ctx, tn_tt_sample(tt, 2, 0, 1, got), TN_ERR_NONFINITE, "tt_sample: the train is zero, expected probabilities");
    tn_tt_destroy(tt);
    close_world(&w);
}

TEST(trains_refuse)
{
    static const int64_t extents[3] = {2, 3, 2}, none[2] = {2, 0};
    world     w;
    tn_tt_desc d = ZERO;
    double    x, number = 0;
    if (!open_on(&w, TN_F64, 14, 1, NULL)) return;
    tn_tt *tt = train(&w, 3, extents, 2);
    d.relative = 1;
    CHECK(!tn_tt_round(tt, &d));
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "tt_round: relative is 1, expected 0 or more and below 1, which would keep nothing");
    d.relative = 0;
    d.max_bond = -1;
    CHECK(!tn_tt_round(tt, &d));
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "tt_round: max_bond is -1");
    CHECK(!tn_tt_canonical(tt, 3, NULL));
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "tt_canonical: site is 3, expected 0 to 2");
    CHECK(!tn_tt_random(w.ctx, 2, none, 2, 1));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "tt_random: extent 1 is 0, expected 1 or more");
    number = (double)NAN;
    tn_tt *bad = tn_tt_create(w.ctx, 3, tt->core);
    CHECK_STATUS(tn_write(tn_slice(tn_reshape_2d(bad->core[1], 1, 12), 1, 3, 4), TN_F64, &number, 1), TN_OK);
    REFUSED(w.ctx, tn_tt_canonical(bad, 1, NULL), TN_ERR_NONFINITE, "tt_canonical: a core, [2,3,2], has NaN or infinity");
    REFUSED(w.ctx, tn_tt_entropies(bad), TN_ERR_NONFINITE, "tt_entropies: a core");
    CHECK_STATUS(tn_tt_log_norm(bad, &x), TN_ERR_NONFINITE);
    CHECK(x != x);
    CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "tt_log_norm: a core");
    tn_tt_destroy(bad);
    tn_tt_destroy(tt);
    close_world(&w);
}

/* Random trains have norm 1, the canonical form of site 0, the bonds that the extents allow, and numbers of their seed. */
TEST(random_trains)
{
    static const int64_t extents[5] = {2, 3, 2, 2, 3}, bonds[2][4] = {{2, 4, 4, 3}, {1, 1, 1, 1}};
    world  w;
    double form = 0;
    if (!open_on(&w, TN_F64, 25, 1, NULL)) return;
    for (int k = 0; k < 2; k++) {
        tn_tt *a = tn_tt_random(w.ctx, 5, extents, k ? 1 : 4, 7), *b = tn_tt_random(w.ctx, 5, extents, k ? 1 : 4, 7);
        tn_tt *c = tn_tt_random(w.ctx, 5, extents, k ? 1 : 4, 8);
        double ln, sign;
        if (!CHECK(a && b && c)) return;
        test_raise(&form, from_canonical(a, 0, 1));
        for (int j = 0; j < 5; j++) {
            const int64_t n = tn_tensor_count(a->core[j]);
            CHECK(j == 4 || a->core[j]->shape[2] == bonds[k][j]);
            CHECK(memcmp(host(a->core[j]), host(b->core[j]), (size_t)n * sizeof(double)) == 0);
        }
        CHECK_STATUS(tn_tt_log_inner(a, c, &ln, &sign), TN_OK);
        CHECK(ln < -0.1);
        tn_tt_destroy(a);
        tn_tt_destroy(b);
        tn_tt_destroy(c);
    }
    close_world(&w);
    WORST("random trains", form, 1e-13);
}

/* An operator of any order, with its output at any place: the dense train is the sum over the terms. */
TEST(operators_are_trains)
{
    world  w;
    double worst = 0;
    if (!open_on(&w, TN_F64, 26, 1, NULL)) return;
    for (int order = 1; order <= 4; order++)
        for (int place = 0; place <= order; place++) {
            tn_tensor *p = any(&w, 2, 3, 4, 0, 0, 1), *f[4];
            int64_t    n, all = 3;
            double     got[360];
            for (int k = 0; k < order; k++) f[k] = any(&w, 2, 4, 2 + k, 0, 0, 1);
            tn_cp *cp = tn_cp_create(w.ctx, order, p, f, TN_CP_INPUT_PLAIN);
            tn_tt *tt = tn_tt_from_cp(w.ctx, cp, place);
            if (!CHECK(cp && tt && tt->count == order + 1)) return;
            for (int k = 0; k < order; k++) all *= 2 + k;
            memcpy(got, dense(tt, &n), (size_t)all * sizeof *got);
            CHECK_INT(n, all);
            for (int64_t i = 0; i < n; i++) {
                double sum = 0;
                for (int64_t t = 0; t < 4; t++) {
                    double  product = 1;
                    int64_t rest = i;
                    for (int k = order; k >= 0; k--) {
                        const int     e = k - (k > place);
                        const int64_t extent = k == place ? 3 : 2 + e, at = rest % extent;
                        product *= k == place ? host(p)[at * 4 + t] : host(f[e])[t * extent + at];
                        rest /= extent;
                    }
                    sum += product;
                }
                test_raise(&worst, fabs(sum - got[i]));
            }
            tn_tt_destroy(tt);
            tn_cp_destroy(cp);
            tn_ctx_reset(w.ctx);
        }
    close_world(&w);
    WORST("operators as trains", worst, 1e-13);
}

/* ---- products and exchanges --------------------------------------------------------------------- */

TEST(axes_are_exchanged)
{
    static const int64_t extents[4] = {2, 3, 4, 2};
    world  w;
    double worst = 0;
    if (!open_on(&w, TN_F64, 15, 1, NULL)) return;
    for (int64_t axis = 0; axis < 3; axis++) {
        tn_tt     *tt = train(&w, 4, extents, 3), *swapped = tn_tt_swap(tt, axis, NULL);
        tn_tensor *a = tn_tt_dense(tt), *b = tn_tt_dense(swapped);
        double     x[48];
        if (!CHECK(a && b)) return;
        tn_tensor *c = tn_copy(w.ctx, tn_transpose(a, (int)axis, (int)axis + 1));
        memcpy(x, host(b), sizeof x);
        for (int i = 0; i < 48; i++) test_raise(&worst, fabs(x[i] - host(c)[i]));
        {
            tn_tt_desc loose = ZERO;
            double     exact;
            loose.eps = 0.7;
            tn_tt *less = tn_tt_swap(tt, axis, &loose);
            double apart = distance(swapped, less, 1);
            CHECK_STATUS(tn_tt_norm(tt, &exact), TN_OK);
            CHECK(exact > 2);                                /* the error is relative to it */
            CHECK(less && less->core[axis]->shape[2] < swapped->core[axis]->shape[2]);
            CHECK(less && apart > 0.01 && apart <= 0.7);
            CHECK_NEAR(less ? less->error : -1, apart, 1e-12);
            tn_tt_destroy(less);
        }
        REFUSED(w.ctx, tn_tt_swap(tt, 3, NULL), TN_ERR_ARG, "tt_swap: axis is 3, expected 0 to 2");
        tn_tensor_destroy(a);
        tn_tensor_destroy(b);
        tn_tt_destroy(swapped);
        tn_tt_destroy(tt);
    }
    {
        static const int64_t one = 2;
        tn_tt *tt = train(&w, 1, &one, 1);
        REFUSED(w.ctx, tn_tt_swap(tt, 0, NULL), TN_ERR_ARG, "tt_swap: the train has 1 axis, expected 2 or more");
        tn_tt_destroy(tt);
    }
    close_world(&w);
    WORST("exchanged axes", worst, 1e-12);
}

/* A matrix product operator times a train, against the dense matrix times the dense vector. */
TEST(operators_are_applied)
{
    static const int64_t out[3] = {3, 2, 2}, in[3] = {2, 4, 1}, both[3] = {6, 8, 2};
    world  w;
    double worst = 0, got[12];
    if (!open_on(&w, TN_F64, 16, 1, NULL)) return;
    tn_tt *m = train(&w, 3, both, 2);
    tn_tt *x = train(&w, 3, in, 3);
    tn_tt *y = tn_tt_apply(m, x);
    tn_tensor *matrix = tn_tt_matrix(m, out, in);
    if (CHECK(y && matrix && matrix->shape[0] == 12 && matrix->shape[1] == 8 && y->core[1]->shape[0] == 6)) {
        int64_t n;
        memcpy(got, dense(y, &n), sizeof got);
        CHECK_INT(n, 12);
        for (int i = 0; i < 12; i++) {
            double sum = 0;
            for (int j = 0; j < 8; j++) sum += host(matrix)[i * 8 + j] * dense(x, &n)[j];
            test_raise(&worst, fabs(sum - got[i]) / (1 + fabs(sum)));
        }
    }
    CHECK(!tn_tt_apply(x, m));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "tt_apply: axis 0 of the matrix has 2 elements, expected a multiple of the 6 of x");
    tn_tensor_destroy(matrix);
    tn_tt_destroy(m);
    tn_tt_destroy(x);
    tn_tt_destroy(y);
    close_world(&w);
    WORST("an operator times a train", worst, 1e-12);
}

/* ---- a linear layer as a train ------------------------------------------------------------------- */

TEST(tt_linear_is_its_matrix)
{
    world  w;
    double worst = 0, round = 0, slope = 0;
    if (!open_on(&w, TN_F64, 17, 1, NULL)) return;
    for (int k = 1; k <= 3; k++) {
        tn_tt_linear_desc d = ZERO;
        tn_tt_linear      m, copy;
        tn_tt_desc        exact = ZERO;
        int64_t           in = 1, out = 1;
        char              name[16];
        for (int i = 0; i < k; i++) { in *= d.in[i] = 2 + i; out *= d.out[i] = 3 - i; }
        d.count = k; d.bond = 4; d.bias = true;
        snprintf(name, sizeof name, "m%d", k);
        CHECK_STATUS(tn_tt_linear_init(w.params, name, &d, &m), TN_OK);
        tn_tt *tt = tn_tt_from_tt_linear(w.ctx, &m);
        tn_tensor *matrix = tn_tt_matrix(tt, d.out, d.in);
        tn_tensor *x = tn_tensor_keep(any(&w, 3, 2, 3, in, 0, 1));
        tn_assign(m.b, any(&w, 1, out, 0, 0, 0, 1));
        tn_tensor *y = tn_tt_linear_forward(w.ctx, &m, x);
        if (!CHECK(y && y->rank == 3 && y->shape[2] == out)) return;
        for (int i = 0; i < 6; i++)
            for (int o = 0; o < out; o++) {
                double sum = host(m.b)[o];
                for (int j = 0; j < in; j++) sum += host(matrix)[o * in + j] * host(x)[i * in + j];
                test_raise(&worst, fabs(sum - host(y)[i * out + o]));
            }
        tn_tt_destroy(tt);
        tt = tn_tt_from_matrix(w.ctx, matrix, k, d.out, d.in, &exact);         /* by SVDs, and into another layer */
        tn_tensor_destroy(matrix);
        snprintf(name, sizeof name, "s%d", k);
        d.bond = 1;
        CHECK_STATUS(tn_tt_linear_init(w.params, name, &d, &copy), TN_OK);
        CHECK_STATUS(tn_tt_linear_assign_tt(&copy, tt), k == 1 ? TN_OK : TN_ERR_SHAPE);
        if (k > 1) CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "expected bonds up to 1");
        snprintf(name, sizeof name, "c%d", k);
        d.bond = 7;                                          /* more than the train has */
        CHECK_STATUS(tn_tt_linear_init(w.params, name, &d, &copy), TN_OK);
        CHECK_STATUS(tn_tt_linear_assign_tt(&copy, tt), TN_OK);
        tn_assign(copy.b, m.b);
        y = tn_sub(w.ctx, y, tn_tt_linear_forward(w.ctx, &copy, x));
        test_raise(&round, sqrt(tn_item(tn_sum(w.ctx, tn_mul(w.ctx, y, y)))));
        /* the layer is linear in each core: the product of a core and its gradient is the loss without the bias */
        tn_record(w.ctx);
        y = tn_sum(w.ctx, tn_sub(w.ctx, tn_tt_linear_forward(w.ctx, &m, x), m.b));
        {
            const double loss = tn_item(y);
            CHECK_STATUS(tn_backward(w.ctx, y), TN_OK);
            for (int i = 0; i < k; i++) {
                double sum = 0;
                for (int64_t j = 0; j < tn_tensor_count(m.core[i]); j++) sum += host(m.core[i])[j] * host(m.core[i]->grad)[j];
                test_raise(&slope, fabs(sum - loss) / (1 + fabs(loss)));
            }
        }
        tn_tt_destroy(tt);
        tn_tensor_destroy(x);
    }
    {
        tn_tt_linear_desc d = ZERO;
        tn_tt_linear      m;
        double            norm;
        d.count = 2; d.bond = 1; d.in[0] = d.in[1] = d.out[0] = 2; d.out[1] = -3;
        CHECK_STATUS(tn_tt_linear_init(w.params, "bad", &d, &m), TN_ERR_SHAPE);
        CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "tt_linear bad: out[1] is -3, expected 1 to 2^31 - 2");
        d.in[1] = 0;
        FAILS(w.ctx, tn_tt_linear_init(w.params, "bad", &d, &m), TN_ERR_SHAPE, "tt_linear bad: in[1] is 0, expected 1 to 2^31 - 2");
        for (int i = 0; i < 3; i++) d.in[i] = d.out[i] = 8;
        d.count = 3; d.bond = 5;
        CHECK_STATUS(tn_tt_linear_init(w.params, "big", &d, &m), TN_OK);
        tn_tt *tt = tn_tt_from_tt_linear(w.ctx, &m);
        CHECK_STATUS(tn_tt_norm(tt, &norm), TN_OK);                            /* 512 x 512 elements of variance 1/512 */
        CHECK_NEAR(norm * norm / 512, 1, 0.3);
        tn_tt_destroy(tt);
        d.count = 2; d.in[0] = d.in[1] = 1 << 20; d.out[1] = 1;
        CHECK_STATUS(tn_tt_linear_init(w.params, "bad", &d, &m), TN_ERR_SHAPE);
        CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "tt_linear bad: the product of in is 1099511627776, expected 1 to 2^31 - 2");
    }
    close_world(&w);
    WORST("a linear layer against its matrix", worst, 1e-13);
    WORST("by rounding its matrix", round, 1e-11);
    WORST("gradients of its cores", slope, 1e-12);
}

/* The weights of a new layer, as a matrix, have the variance that was asked for, or 1/inputs: the sum over all bonds has it. */
TEST(tt_linear_has_its_variance)
{
    static const int64_t wide[2] = {65536, 65536}, one[2] = {1, 1};
    world w;
    if (!open_on(&w, TN_F64, 28, 1, NULL)) return;
    for (int k = 0; k < 2; k++) {
        tn_tt_linear_desc d = ZERO;
        tn_tt_linear      m;
        double            square = 0;
        d.count = 2; d.bond = 16;
        for (int i = 0; i < 2; i++) d.in[i] = d.out[i] = 8;
        d.std = k ? 0.5 : 0;
        CHECK_STATUS(tn_tt_linear_init(w.params, k ? "a" : "b", &d, &m), TN_OK);
        tn_tt *tt = tn_tt_from_tt_linear(w.ctx, &m);
        tn_tensor *matrix = tn_tt_matrix(tt, d.out, d.in);
        if (!CHECK(matrix && tn_tensor_count(matrix) == 4096)) return;
        for (int i = 0; i < 4096; i++) square += host(matrix)[i] * host(matrix)[i] / 4096;
        CHECK(fabs(square / (k ? 0.25 : 1.0 / 64) - 1) < 0.25);
        tn_tensor_destroy(matrix);
        tn_tt_destroy(tt);
    }
    CHECK(!tn_tt_from_matrix(w.ctx, any(&w, 2, 2, 2, 0, 0, 1), 2, wide, one, NULL));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "tt_from_matrix: the extents of axis 1 are 65536 and 1, expected 1 or more, and products below");
    close_world(&w);
}

/* ---- networks ------------------------------------------------------------------------------------ */

/* A bilinear layer as a train of three axes, and as a net: the same function, whatever the order of the axes. */
TEST(bilinear_layers_are_trains)
{
    world       w;
    tn_mlp_desc d = ZERO;
    tn_mlp      mlp;
    double      worst = 0;
    if (!open_on(&w, TN_F64, 18, 1, NULL)) return;
    d.in = 4; d.hidden = 3; d.out = 5; d.bias = true;
    CHECK_STATUS(tn_mlp_init(w.params, "mlp", &d, &mlp), TN_OK);
    tn_cp *cp = tn_cp_from_mlp(w.ctx, &mlp);
    tn_net *net = tn_net_from_cp(w.ctx, cp);
    REQUIRE(cp && net);
    for (int place = 0; place < 3; place++) {
        tn_tt *tt = tn_tt_from_cp(w.ctx, cp, place);
        int    input[3] = {0, 0, 0};
        double cosine = 0, inner, norm;
        input[place] = -1;
        tn_net *other = tn_net_from_tt(w.ctx, tt, input);
        if (!CHECK(tt && other && other->legs == 2 && other->outs == 1)) break;
        other->constant = net->constant;
        CHECK_STATUS(tn_net_cosine(net, other, TN_NET_SYMMETRIC, &cosine), TN_OK);
        test_raise(&worst, fabs(cosine - 1));
        CHECK_STATUS(tn_tt_norm(tt, &norm), TN_OK);
        CHECK_STATUS(tn_net_norm(net, TN_NET_AS_GIVEN, &inner), TN_OK);
        test_raise(&worst, fabs(norm / inner - 1));
        tn_net_destroy(other);
        tn_tt_destroy(tt);
    }
    CHECK(!tn_tt_from_cp(w.ctx, cp, 3));
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "tt_from_cp: place is 3");
    CHECK(!tn_net_from_tt(w.ctx, NULL, NULL));
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "net_from_tt: the train is NULL");
    CHECK(!tn_tt_from_mps(w.ctx, NULL) && !tn_tt_from_tt_linear(w.ctx, NULL) && !tn_tt_from_cp(NULL, cp, 1));
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "tt_from_mps: the layer is NULL");
    tn_net_destroy(net);
    tn_cp_destroy(cp);
    close_world(&w);
    WORST("a bilinear layer as a train", worst, 1e-12);
}

TEST(attention_is_a_train)
{
    static const int input[6] = {0, 1, 0, 1, 1, -1};
    double worst = 0;
    world  w;
    if (!open_on(&w, TN_F64, 19, 1, NULL)) return;
    for (int k = 0; k < 2; k++) {
        tn_attention_desc d = ZERO;
        tn_attention      layer;
        double            cosine, a, b;
        d.dim = 3; d.heads = 2; d.d_qk = 2; d.d_v = 3; d.out = 4;
        d.kind = k ? TN_ATTENTION_BILINEAR : TN_ATTENTION_SQUARED;
        CHECK_STATUS(tn_attention_init(w.params, k ? "b" : "a", &d, &layer), TN_OK);
        tn_tt *tt = tn_tt_from_attention(w.ctx, &layer, 2);
        tn_net *net = tn_net_from_attention(w.ctx, &layer, 2);
        tn_net *other = tn_net_from_tt(w.ctx, tt, input);
        if (!CHECK(tt && net && other)) return;
        CHECK(tt->core[1]->shape[0] == 4 && tt->core[2]->shape[0] == 2 && tt->core[5]->shape[0] == 6);
        CHECK_STATUS(tn_net_cosine(net, other, TN_NET_AS_GIVEN, &cosine), TN_OK);
        CHECK_STATUS(tn_net_norm(net, TN_NET_AS_GIVEN, &a), TN_OK);
        CHECK_STATUS(tn_tt_norm(tt, &b), TN_OK);
        test_raise(&worst, fabs(cosine - 1));
        test_raise(&worst, fabs(a / b - 1));
        tn_net_destroy(net);
        tn_net_destroy(other);
        tn_tt_destroy(tt);
    }
    close_world(&w);
    WORST("attention as a train", worst, 1e-12);
}

/* The net of a layer is the layer. */
TEST(nets_of_layers)
{
    world       w;
    tn_mps_desc d = ZERO;
    tn_mps      m;
    tn_tensor  *leg[4];
    int         input[5] = {0, 1, -1, 2, 3};
    double      worst = 0;
    if (!open_on(&w, TN_F64, 20, 1, NULL)) return;
    d.sites = 4; d.bond = 3; d.out = 2; d.dim = 3; d.map = TN_LOCAL_GIVEN; d.random = true;
    CHECK_STATUS(tn_mps_init(w.params, "m", &d, &m), TN_OK);
    tn_tt *tt = tn_tt_from_mps(w.ctx, &m);
    tn_net    *net = tn_net_from_tt(w.ctx, tt, input);
    tn_tensor *x = any(&w, 3, 5, 4, 3, 0, 1);
    for (int k = 0; k < 4; k++) leg[k] = tn_reshape_2d(tn_copy(w.ctx, tn_slice(x, 1, k, k + 1)), 5, 3);
    tn_tensor *y = tn_net_apply_each(w.ctx, net, leg);
    x = tn_mps_forward(w.ctx, &m, x, NULL);
    for (int i = 0; i < 10; i++) test_raise(&worst, fabs(host(x)[i] - host(y)[i]));
    tn_net_destroy(net);
    input[0] = input[1];
    input[2] = 1;                                            /* the label as an input: another extent */
    CHECK(!tn_net_from_tt(w.ctx, tt, input));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "net_from_tt: leg 2 has extent 2, expected 3 as leg 0 of the same input");
    tn_tt_destroy(tt);
    close_world(&w);
    WORST("a net against its layer", worst, 1e-12);
}

/* ---- two-site sweeps ------------------------------------------------------------------------------ */

static int bit_of(int64_t x, int64_t bits, int64_t k) { return (int)(x >> (bits - 1 - k) & 1); }

static int rule_of(int rule, int64_t x, int64_t bits)
{
    int odd = 0;
    if (rule == 30) return bit_of(x, bits, 2) ^ (bit_of(x, bits, 3) | bit_of(x, bits, 4));
    for (int64_t k = 0; k < bits; k++) odd ^= bit_of(x, bits, k);
    return odd;
}

/* The largest error over all strings after sweeps over some of them. */
static double fitted(world *w, int rule, int64_t bits, int64_t step, int64_t label, int64_t start, int64_t sweeps, double *rms)
{
    const int64_t  all = (int64_t)1 << bits, count = (all + step - 1) / step, shape[3] = {count, bits, 2}, out[2] = {count, 1};
    int64_t        extents[16], index[16];
    double        *phi = doubles(count * bits * 2), y[4096], worst = 0, got;
    tn_tt_fit_desc d = ZERO;
    d.max_bond = 2;
    d.sweeps = sweeps;
    if (!CHECK(phi && count <= 4096)) return HUGE_VAL;
    for (int64_t i = 0; i < count; i++) {
        int64_t x = i * 1237 % all;                          /* a permutation of all strings */
        x = (x ^ x >> bits / 2) * 731 % all;
        x ^= x >> (bits + 1) / 2;
        for (int64_t k = 0; k < bits; k++) phi[(i * bits + k) * 2 + bit_of(x, bits, k)] = 1;
        y[i] = rule_of(rule, x, bits);
    }
    for (int64_t k = 0; k <= bits; k++) extents[k] = k == label ? 1 : 2;
    tn_tt *tt = tn_tt_random(w->ctx, bits + 1, extents, start, 3);
    tn_tt *fit = tn_tt_fit(tt, label, tn_tensor_from(w->ctx, 3, shape, TN_F64, phi), tn_tensor_from(w->ctx, 2, out, TN_F64, y),
                           &d, rms);
    for (int64_t i = 0; CHECK(fit != NULL) && i < all; i++) {
        for (int64_t k = 0; k <= bits; k++) index[k] = k == label ? 0 : bit_of(i, bits, k - (k > label));
        if (!CHECK_STATUS(tn_tt_elements(fit, 1, index, &got), TN_OK)) break;
        test_raise(&worst, fabs(got - rule_of(rule, i, bits)));
    }
    CHECK(fit && fit->core[1]->shape[0] <= 2);
    tn_tt_destroy(fit);
    tn_tt_destroy(tt);
    tn_ctx_reset(w->ctx);
    return worst;
}

TEST(sweeps_are_exact)
{
    world  w;
    double worst = 0, rms = 1;
    if (!open_on(&w, TN_F64, 21, 1, NULL)) return;
    for (int64_t label = 0; label <= 8; label += 4)          /* bonds of 2, one sweep over all 256 strings */
        for (int rule = 0; rule <= 30; rule += 30) {
            test_raise(&worst, fitted(&w, rule, 8, 1, label, 2, 1, &rms));
            CHECK(rms < 1e-8);
        }
    test_raise(&worst, fitted(&w, 0, 2, 1, 1, 2, 1, &rms));
    double part = fitted(&w, 0, 10, 4, 5, 32, 3, &rms);      /* 256 of 1,024 strings */
    close_world(&w);
    WORST("parity and rule 30 after one sweep", worst, 1e-7);
    WORST("parity of 10 bits from a quarter of all strings", part, 1e-2);
}

/* What is fitted is what the error says, for a label of several elements and features that are not bits; more sweeps are not
   worse. */
TEST(sweeps_tell_their_error)
{
    static const int64_t extents[6] = {3, 3, 3, 4, 3, 3};
    world          w;
    tn_mps_desc    d = ZERO;
    tn_mps         m;
    tn_tt_fit_desc f = ZERO;
    double         before = HUGE_VAL, error, apart = 0;
    if (!open_on(&w, TN_F64, 22, 1, NULL)) return;
    d.sites = 5; d.bond = 6; d.out = 4; d.dim = 3; d.map = TN_LOCAL_GIVEN; d.label = 3;
    CHECK_STATUS(tn_mps_init(w.params, "m", &d, &m), TN_OK);
    tn_tensor *phi = tn_tensor_keep(any(&w, 3, 300, 5, 3, 0, 1));
    tn_tensor *y = tn_tensor_keep(any(&w, 2, 300, 4, 0, 0, 1));
    tn_tt *tt = tn_tt_random(w.ctx, 6, extents, 4, 1);
    f.max_bond = 4;
    for (f.sweeps = 1; f.sweeps <= 3; f.sweeps++) {
        double sum = 0;
        tn_ctx_reset(w.ctx);
        tn_tt *fit = tn_tt_fit(tt, 3, phi, y, &f, &error);
        if (!CHECK(fit != NULL)) break;
        CHECK_STATUS(tn_mps_assign_tt(&m, fit), TN_OK);
        tn_tensor *made = tn_sub(w.ctx, tn_mps_forward(w.ctx, &m, phi, NULL), y);
        for (int i = 0; i < 1200; i++) sum += host(made)[i] * host(made)[i];
        test_raise(&apart, fabs(sqrt(sum / 1200) - error));
        CHECK(error < before * 1.01);
        before = error;
        tn_tt_destroy(fit);
    }
    CHECK(before < 0.95);
    {
        const double number = (double)NAN;
        CHECK_STATUS(tn_write(tn_slice(tn_reshape_2d(y, 1, 1200), 1, 7, 8), TN_F64, &number, 1), TN_OK);
        CHECK(!tn_tt_fit(tt, 3, phi, y, &f, &error));
        CHECK(error != error);
        CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "tt_fit: y, [300,4], has NaN or infinity");
    }
    CHECK(!tn_tt_fit(tt, 3, tn_copy(w.ctx, tn_slice(phi, 1, 0, 4)), y, &f, NULL));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "tt_fit: phi is [300,4,3], expected [b,5,3]");
    f.ridge = -1;
    REFUSED(w.ctx, tn_tt_fit(tt, 3, phi, y, &f, NULL), TN_ERR_ARG, "and ridge -1, expected 0 or more");
    f.ridge = 0;
    REFUSED(w.ctx, tn_tt_fit(tt, 6, phi, y, &f, NULL), TN_ERR_ARG, "tt_fit: label is 6 of 6 axes");
    CHECK(!tn_tt_fit(tt, 2, phi, y, &f, NULL));
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "tt_fit: core 3 is [4,4,4], expected 3 elements as the first site");
    tn_tensor_destroy(phi);
    tn_tensor_destroy(y);
    tn_tt_destroy(tt);
    close_world(&w);
    WORST("the error of a fit", apart, 1e-10);
}

/* A fit begins with the numbers of its train: one that is exact stays so with a single step of conjugate gradients per bond,
   even if its states have scales of 2^100. Bonds of 6 shrink to the 2 that the train needs. */
TEST(sweeps_begin_with_the_train)
{
    enum { N = 40, ROWS = 400 };
    int64_t        extents[N + 1];
    world          w;
    tn_tt_fit_desc f = ZERO;
    tn_mps_desc    d = ZERO;
    tn_mps         m;
    double         error = 1;
    if (!open_on(&w, TN_F64, 24, 1, NULL)) return;
    for (int k = 0; k <= N; k++) extents[k] = k == 7 ? 1 : 2;
    d.sites = N; d.bond = 2; d.out = 1; d.map = TN_LOCAL_GIVEN; d.label = 7;
    CHECK_STATUS(tn_mps_init(w.params, "m", &d, &m), TN_OK);
    tn_tensor *phi = any(&w, 3, ROWS, N, 2, 0, 6);
    tn_tt *tt = tn_tt_random(w.ctx, N + 1, extents, 2, 1);
    CHECK_STATUS(tn_mps_assign_tt(&m, tt), TN_OK);
    tn_tensor *y = tn_mps_forward(w.ctx, &m, phi, NULL);
    double     size = sqrt(tn_item(tn_mean(w.ctx, tn_mul(w.ctx, y, y))));
    tn_tt     *sum = tn_tt_add(tt, tt);                                 /* bonds of 4, scaled to the same function */
    tn_tt_destroy(tt);
    tt = tn_tt_scale(sum, 0.5);
    tn_tt_destroy(sum);
    f.steps = 1;
    f.max_bond = 6;
    tn_tt *fit = tn_tt_fit(tt, 7, phi, y, &f, &error);
    CHECK(fit != NULL && size > 1e6);
    WORST("a fit that begins exact", error / size, 1e-6);
    for (int k = 1; fit && k <= N; k++) CHECK(fit->core[k]->shape[0] <= 2);
    tn_tt_destroy(fit);
    tn_tt_destroy(tt);
    close_world(&w);
}

/* Two sites: one tensor X, so that a fit is ridge regression with the features p (x) q, whatever their scales and correlation. */
TEST(sweeps_are_ridge_regression)
{
    enum { N = 40, D = 2, OUT = 3, M = D * D };
    static const int64_t extents[3] = {D, OUT, D}, data[3] = {N, 2, D}, out[2] = {N, OUT};
    world  w;
    double worst = 0;
    if (!open_on(&w, TN_F64, 29, 1, NULL)) return;
    for (int k = 0; k < 2; k++) {
        double         phi[N * 2 * D], y[N * OUT], a[M][M + OUT], mean = 0, got;
        tn_tt_fit_desc d = ZERO;
        tn_tt         *tt = tn_tt_random(w.ctx, 3, extents, 4, 3);
        uint64_t       rng = 31;
        memset(a, 0, sizeof a);
        d.ridge = k ? 0.5 : 1e-3;
        for (int i = 0; i < N * 2 * D; i++) phi[i] = test_random_real(&rng) * (i % D ? 0.3 : 1) + (i % D ? phi[i - 1] : 0);
        for (int i = 0; i < N * OUT; i++) y[i] = test_random_real(&rng);
        for (int b = 0; b < N; b++)
            for (int i = 0; i < M; i++) {
                const double f = phi[b * 4 + i / D] * phi[b * 4 + 2 + i % D];
                for (int j = 0; j < M; j++) a[i][j] += f * phi[b * 4 + j / D] * phi[b * 4 + 2 + j % D];
                for (int o = 0; o < OUT; o++) a[i][M + o] += f * y[b * OUT + o];
                mean += f * f / M;                           /* the squares of a feature, summed over the data */
            }
        for (int i = 0; i < M; i++) a[i][i] += d.ridge * mean;
        for (int i = 0; i < M; i++)                          /* Gauss and Jordan: the matrix is positive */
            for (int j = 0; j < M; j++) {
                const double f = a[j][i] / a[i][i];
                for (int c = i; c < M + OUT && j != i; c++) a[j][c] -= f * a[i][c];
            }
        tn_tt *fit = tn_tt_fit(tt, 1, tn_tensor_from(w.ctx, 3, data, TN_F64, phi), tn_tensor_from(w.ctx, 2, out, TN_F64, y), &d,
                               NULL);
        for (int64_t i = 0; CHECK(fit != NULL) && i < M * OUT; i++) {
            const int64_t index[3] = {i / OUT / D, i % OUT, i / OUT % D};
            CHECK_STATUS(tn_tt_elements(fit, 1, index, &got), TN_OK);
            test_raise(&worst, fabs(got - a[i / OUT][M + i % OUT] / a[i / OUT][i / OUT]));
        }
        tn_tt_destroy(fit);
        tn_tt_destroy(tt);
    }
    close_world(&w);
    WORST("a fit of two sites against ridge regression", worst, 1e-8);
}

/* One step of conjugate gradients leaves a train alone that fits: what the next bond begins with has the right numbers. */
TEST(sweeps_keep_what_fits)
{
    static const int64_t extents[8] = {3, 3, 3, 2, 3, 3, 3, 3};
    world          w;
    tn_mps_desc    d = ZERO;
    tn_mps         m;
    tn_tt_fit_desc f = ZERO;
    double         error = 1, size = 0;
    if (!open_on(&w, TN_F64, 30, 1, NULL)) return;
    d.sites = 7; d.bond = 3; d.out = 2; d.dim = 3; d.map = TN_LOCAL_GIVEN; d.label = 3;
    CHECK_STATUS(tn_mps_init(w.params, "m", &d, &m), TN_OK);
    tn_tt *tt = train(&w, 8, extents, 3);
    CHECK_STATUS(tn_mps_assign_tt(&m, tt), TN_OK);
    tn_tensor *phi = any(&w, 3, 600, 7, 3, 0, 40);                      /* large, so that states have exponents */
    tn_tensor *y = tn_mps_forward(w.ctx, &m, phi, NULL);
    for (int i = 0; i < 1200; i++) size += host(y)[i] * host(y)[i] / 1200;
    f.max_bond = 6;                                              /* bonds that the label has passed have both extents */
    f.steps = 1;
    f.ridge = 1e-14;
    tn_tt *fit = tn_tt_fit(tt, 3, phi, y, &f, &error);
    CHECK(fit != NULL);
    WORST("what fitted before", error / sqrt(size), 1e-9);
    tn_tt_destroy(fit);
    tn_tt_destroy(tt);
    close_world(&w);
}

/* Least squares of two kinds of rows are exact after two conjugate gradient steps, and not after one each time. */
TEST(sweeps_take_no_more_steps_than_they_may)
{
    static const int64_t extents[3] = {2, 1, 2}, data[3] = {4, 2, 2}, out[2] = {4, 1};
    const double  phi[16] = {4, 0, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0, 4, 0, 1}, y[4] = {1, -2, 3, 1};
    world w;
    if (!open_on(&w, TN_F64, 33, 1, NULL)) return;
    for (int steps = 1; steps <= 2; steps++) {
        tn_tt_fit_desc f = ZERO;
        double         error;
        tn_tt         *tt = tn_tt_random(w.ctx, 3, extents, 2, 5);
        f.steps = steps;
        tn_tt *fit = tn_tt_fit(tt, 1, tn_tensor_from(w.ctx, 3, data, TN_F64, phi), tn_tensor_from(w.ctx, 2, out, TN_F64, y), &f, &error);
        CHECK(fit != NULL && (steps == 1 ? error > 1e-3 : error < 1e-6));
        tn_tt_destroy(fit);
        tn_tt_destroy(tt);
    }
    close_world(&w);
}

/* A matrix of rank 2 from 30 of its 36 elements, by rows and columns as features: one singular vector is not enough, and with two
   the others follow. `relative` drops the smaller one. */
TEST(sweeps_find_the_rank)
{
    enum { D = 6 };
    static const int64_t extents[3] = {D, 1, D};
    world  w;
    double worst = 0;
    if (!open_on(&w, TN_F64, 32, 1, NULL)) return;
    for (int k = 0; k < 2; k++) {
        const int64_t  count = k ? 36 : 30, data[3] = {count, 2, D}, out[2] = {count, 1};
        double         phi[36 * 2 * D], y[36], x[D][D], error, got;
        tn_tt_fit_desc f = ZERO;
        tn_tt         *tt = tn_tt_random(w.ctx, 3, extents, D, 5);
        int64_t        n = 0;
        memset(phi, 0, sizeof phi);
        for (int i = 0; i < D; i++)
            for (int j = 0; j < D; j++) {
                x[i][j] = k ? (i == j) * (i ? 0 : 3) + (i == 1 && j == 1) : cos(i + 2.0 * j);
                if (!k && (i * 5 + j * 2) % 6 == 1) continue;
                if (n == count) break;
                phi[n * 2 * D + i] = phi[n * 2 * D + D + j] = 1;
                y[n++] = x[i][j];
            }
        f.relative = k ? 0.5 : 0;
        f.max_bond = k ? 0 : 2;
        tn_tt *fit = tn_tt_fit(tt, 1, tn_tensor_from(w.ctx, 3, data, TN_F64, phi), tn_tensor_from(w.ctx, 2, out, TN_F64, y), &f,
                               &error);
        if (!CHECK(fit != NULL)) break;
        CHECK_INT(fit->core[0]->shape[2], k ? 1 : 2);
        if (k) CHECK_NEAR(error, 1.0 / 6, 1e-8);             /* the element 1 beside 3, among 36 */
        for (int64_t i = 0; !k && i < D * D; i++) {
            const int64_t index[3] = {i / D, 0, i % D};
            CHECK_STATUS(tn_tt_elements(fit, 1, index, &got), TN_OK);
            test_raise(&worst, fabs(got - x[i / D][i % D]));
        }
        tn_tt_destroy(fit);
        tn_tt_destroy(tt);
    }
    close_world(&w);
    WORST("a matrix of rank 2 from a part of it", worst, 1e-2);
}

/* The result is in the canonical form of the label wherever that is, and values that no double holds are an error. */
TEST(sweeps_with_labels_at_ends)
{
    world          w;
    tn_tt_fit_desc f = ZERO;
    double         form = 0, apart = 0, error, norm;
    if (!open_on(&w, TN_F64, 23, 1, NULL)) return;
    f.max_bond = 2;
    for (int64_t label = 0; label <= 4; label++) {
        int64_t     extents[5] = {2, 2, 2, 2, 2};
        tn_mps_desc d = ZERO;
        tn_mps      m;
        tn_tensor  *phi = any(&w, 3, 50, 4, 2, 0, 1), *y = any(&w, 2, 50, 5, 0, 0, 1);
        double      sum = 0;
        const char  name[2] = {(char)('a' + label), 0};
        d.sites = 4; d.bond = 5; d.out = 5; d.map = TN_LOCAL_GIVEN;
        d.label = label ? label : (int64_t)TN_MPS_FIRST;
        CHECK_STATUS(tn_mps_init(w.params, name, &d, &m), TN_OK);
        extents[label] = 5;
        tn_tt *tt = tn_tt_random(w.ctx, 5, extents, 4, 1);
        tn_tt *fit = tn_tt_fit(tt, label, phi, y, &f, &error);
        if (!CHECK(fit != NULL)) break;
        CHECK_STATUS(tn_tt_norm(fit, &norm), TN_OK);
        test_raise(&form, from_canonical(fit, label, norm));
        for (int64_t k = 1; k < 5; k++)
            CHECK(fit->core[k]->shape[0] <= (label == 0 && k == 1 ? 4 : label == 4 && k == 4 ? 4 : 2));
        CHECK_STATUS(tn_mps_assign_tt(&m, fit), TN_OK);
        tn_tensor *made = tn_sub(w.ctx, tn_mps_forward(w.ctx, &m, phi, NULL), y);
        for (int i = 0; i < 250; i++) sum += host(made)[i] * host(made)[i];
        test_raise(&apart, fabs(sqrt(sum / 250) - error));
        tn_tt_destroy(fit);
        for (int k = 0; k < 2; k++) {                            /* finite features whose products are not */
            error = 0;
            CHECK(!tn_tt_fit(tt, label, tn_scale(w.ctx, phi, k ? 1e100 : 1e30), y, &f, &error));
            CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "tt_fit: products of cores and features overflow");
            CHECK(error != error);
        }
        tn_tt_destroy(tt);
    }
    close_world(&w);
    WORST("canonical form of a label at an end", form, 1e-12);
    WORST("the error of a fit of a label at an end", apart, 1e-10);
}

TEST_MAIN(local_features, layer_is_its_definition, gradients_are_those_of_differences, born_layers_are_normalised,
          norms_count_the_label, first_cores, bf16_activations, zero_layers, small_values, a_large_batch_is_its_rows,
          a_large_batch_on_threads, long_chains_are_finite,
          layers_refuse, layers_and_trains_are_the_same_chain, trains_go_into_layers, canonical_forms, norms_have_no_range,
          parity_and_ghz_have_one_bit, spectra_are_those_of_the_unfoldings, discarded_weight_is_the_dense_error,
          samples_follow_the_square, small_probabilities, impossible_strings, trains_refuse, random_trains,
          operators_are_trains, axes_are_exchanged, operators_are_applied, tt_linear_is_its_matrix,
          tt_linear_has_its_variance, bilinear_layers_are_trains, attention_is_a_train, nets_of_layers, sweeps_are_exact,
          sweeps_tell_their_error, sweeps_begin_with_the_train, sweeps_are_ridge_regression, sweeps_keep_what_fits,
          sweeps_take_no_more_steps_than_they_may, sweeps_find_the_rank, sweeps_with_labels_at_ends)
