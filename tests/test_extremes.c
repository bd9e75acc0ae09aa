/* test_extremes.c: decompositions of matrices and tensors of any scale, of what no float can hold, of nearly equal ones, of
   nothing, and with NULL in each argument. */

#include "kit.h"

static tn_tensor *scaled(tn_ctx *ctx, int rank, int64_t n, int64_t m, int64_t q, double scale, const double *p)
{
    const int64_t shape[3] = {n, m, q};
    tn_tensor    *t = tn_tensor_nd(ctx, TN_REAL, rank, shape);
    double       *scaled = (double *)calloc((size_t)tn_tensor_count(t) + 1, sizeof *scaled);
    for (int64_t i = 0; i < tn_tensor_count(t); i++) scaled[i] = scale * p[i];
    CHECK_STATUS(tn_write(t, TN_F64, scaled, tn_tensor_count(t)), TN_OK);
    free(scaled);
    return t;
}

/* ---- one scale like another ------------------------------------------------------------------------------------ */

/* Results of one decomposition: numbers that are multiplied by scale^power if the tensor is multiplied by scale. */
enum { NUMBERS = 4096 };
typedef struct results {
    double  x[NUMBERS];
    int     power[NUMBERS];
    int64_t group[NUMBERS], count, groups;      /* the numbers of one tensor are a group */
} results;

static void add(results *r, const tn_tensor *t, int power)
{
    const int64_t n = t ? tn_tensor_count(t) : 0;
    if (!CHECK(t && r->count + n <= NUMBERS)) return;
    CHECK_STATUS(tn_read(t, TN_F64, r->x + r->count, n), TN_OK);
    for (int64_t i = 0; i < n; i++) { r->power[r->count + i] = power; r->group[r->count + i] = r->groups; }
    r->count += n;
    r->groups++;
}

static void add_number(results *r, double x, int power)
{
    r->x[r->count] = x;
    r->power[r->count] = power;
    r->group[r->count++] = r->groups++;
}

enum { ROWS = 16, COLS = 14, SIDE = 6, EDGE = 4, SAMPLES = 60 };
typedef struct data {
    double wide[ROWS * COLS], square[SIDE * SIDE], symmetric[2 * SIDE * SIDE], right[ROWS], block[EDGE * EDGE * EDGE];
    double mixed[SAMPLES * 2];
} data;

static data made(void)
{
    data     d;
    uint64_t seed = 5;
    double   f[3][EDGE * 2];
    for (int i = 0; i < ROWS * COLS; i++) d.wide[i] = test_random_real(&seed) * pow(0.7, i % COLS);
    for (int i = 0; i < SIDE * SIDE; i++) d.square[i] = test_random_real(&seed);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < SIDE; i++)
            for (int j = 0; j <= i; j++)
                d.symmetric[(b * SIDE + i) * SIDE + j] = d.symmetric[(b * SIDE + j) * SIDE + i] = test_random_real(&seed);
    for (int i = 0; i < ROWS; i++) d.right[i] = test_random_real(&seed);
    for (int k = 0; k < 3; k++) for (int i = 0; i < EDGE * 2; i++) f[k][i] = test_random_real(&seed);
    for (int e = 0; e < EDGE * EDGE * EDGE; e++)          /* two terms */
        d.block[e] = 0.4 * f[0][e / 16 * 2] * f[1][e / 4 % 4 * 2] * f[2][e % 4 * 2]
                   + 0.6 * f[0][e / 16 * 2 + 1] * f[1][e / 4 % 4 * 2 + 1] * f[2][e % 4 * 2 + 1];
    for (int i = 0; i < SAMPLES; i++) {                   /* two sources */
        const double s = i % 7 - 3, t = i * i % 5 > 2 ? 1 : -1;
        d.mixed[2 * i] = (s + 0.5 * t) / 4;
        d.mixed[2 * i + 1] = (t - 0.25 * s + 1) / 4;
    }
    return d;
}

typedef struct product { const double *a; double scale; } product;

static tn_status times(void *user, int64_t count, const double *x, double *y)
{
    const product *p = (const product *)user;
    for (int64_t c = 0; c < count; c++)
        for (int i = 0; i < SIDE; i++) {
            double sum = 0;
            for (int j = 0; j < SIDE; j++) sum += p->a[i * SIDE + j] * x[c * SIDE + j];
            y[c * SIDE + i] = p->scale * sum;
        }
    return TN_OK;
}

static tn_status with_eigh(tn_ctx *ctx, const data *d, double s, results *r)
{
    tn_eigh_result e;
    tn_status      status = tn_eigh(ctx, scaled(ctx, 3, 2, SIDE, SIDE, s, d->symmetric), NULL, &e);
    if (status != TN_OK) { CHECK(!e.values && !e.vectors && !e.cluster && !e.angle); return status; }
    add(r, e.values, 1); add(r, e.vectors, 0); add(r, e.cluster, 0);
    tn_eigh_destroy(&e);
    return TN_OK;
}

static tn_status qr_of(tn_ctx *ctx, const data *d, double s, results *r, bool pivot)
{
    tn_qr_desc   desc = ZERO;
    tn_qr_result f;
    desc.pivot = pivot;
    tn_status status = tn_qr(ctx, scaled(ctx, 2, ROWS, COLS, 0, s, d->wide), &desc, &f);
    if (status != TN_OK) { CHECK(!f.q && !f.r && !f.order); return status; }
    add(r, f.q, 0); add(r, f.r, 1);
    if (pivot) { add(r, f.order, 0); add_number(r, (double)f.rank, 0); }
    tn_qr_destroy(&f);
    return TN_OK;
}

static tn_status with_qr(tn_ctx *ctx, const data *d, double s, results *r)    { return qr_of(ctx, d, s, r, false); }
static tn_status with_pivot(tn_ctx *ctx, const data *d, double s, results *r) { return qr_of(ctx, d, s, r, true); }

static tn_status svd_of(tn_ctx *ctx, const data *d, double s, results *r, tn_svd_method method)
{
    tn_svd_desc   desc = ZERO;
    tn_svd_result f;
    desc.method = method;
    desc.top = 2;
    desc.oversample = desc.power = 1;
    desc.measure = true;
    tn_status status = tn_svd(ctx, scaled(ctx, 2, ROWS, COLS, 0, s, d->wide), &desc, &f);
    if (status != TN_OK) { CHECK(!f.u && !f.s && !f.vt && !f.cluster && !f.angle); return status; }
    add(r, f.s, 1); add(r, f.u, 0); add(r, f.vt, 0); add_number(r, f.error, 0);
    if (method == TN_SVD_RANDOMISED) { add(r, f.angle, 0); add_number(r, f.residual, 0); }
    tn_svd_destroy(&f);
    return TN_OK;
}

static tn_status with_svd(tn_ctx *ctx, const data *d, double s, results *r) { return svd_of(ctx, d, s, r, TN_SVD_EXACT); }
static tn_status with_krylov(tn_ctx *ctx, const data *d, double s, results *r)
{
    return svd_of(ctx, d, s, r, TN_SVD_KRYLOV);
}
static tn_status with_random(tn_ctx *ctx, const data *d, double s, results *r)
{
    return svd_of(ctx, d, s, r, TN_SVD_RANDOMISED);
}

static tn_status with_lstsq(tn_ctx *ctx, const data *d, double s, results *r)
{
    tn_lstsq_result f;
    tn_tensor      *a = scaled(ctx, 2, ROWS, SIDE, 0, s, d->wide), *b = scaled(ctx, 1, ROWS, 0, 0, s, d->right);
    tn_status       status = tn_lstsq(ctx, a, b, NULL, &f);
    if (status != TN_OK) { CHECK(!f.x && !f.residual); return status; }
    add(r, f.x, 0); add(r, f.residual, 1);
    tn_lstsq_destroy(&f);
    status = tn_lstsq(ctx, a, scaled(ctx, 1, ROWS, 0, 0, 1, d->right), NULL, &f);
    if (status != TN_OK) { CHECK(!f.x && !f.residual); return status; }
    add(r, f.x, -1); add(r, f.residual, 0); add_number(r, (double)f.rank, 0);
    tn_lstsq_destroy(&f);
    return TN_OK;
}

static tn_status with_eig(tn_ctx *ctx, const data *d, double s, results *r)
{
    tn_eig_desc   desc = ZERO;
    tn_eig_result e;
    desc.left = true;
    tn_status status = tn_eig(ctx, scaled(ctx, 2, SIDE, SIDE, 0, s, d->square), &desc, &e);
    if (status != TN_OK) { CHECK(!e.values && !e.right && !e.left && !e.condition); return status; }
    add(r, e.values, 1); add(r, e.right, 0); add(r, e.left, 0); add(r, e.condition, 0);
    tn_eig_destroy(&e);
    return TN_OK;
}

static tn_status with_lanczos(tn_ctx *ctx, const data *d, double s, results *r)
{
    tn_lanczos_desc   desc = ZERO;
    tn_lanczos_result f;
    product           p;
    desc.top = 2;
    p.a = d->symmetric;
    p.scale = s;
    tn_status status = tn_lanczos(ctx, SIDE, times, &p, &desc, &f);
    if (status != TN_OK) { CHECK(!f.values && !f.vectors); return status; }
    add(r, f.values, 1); add(r, f.vectors, 0);
    tn_lanczos_destroy(&f);
    return TN_OK;
}

static tn_status with_tt(tn_ctx *ctx, const data *d, double s, results *r)
{
    tn_tt     *tt = tn_tt_svd(ctx, scaled(ctx, 3, EDGE, EDGE, EDGE, s, d->block), 0, NULL, NULL), *round;
    tn_tensor *dense = NULL;
    if (!tt) return tn_ctx_status(ctx);
    tn_tt *twice = tn_tt_add(tt, tt);
    if ((round = twice ? tn_tt_round(twice, NULL) : NULL) != NULL) dense = tn_tt_dense(round);
    if (dense) {
        double norm;
        if (tn_tt_norm(tt, &norm) != TN_OK) norm = (double)NAN;
        add(r, dense, 1); add(r, tt->core[0], 0); add(r, tt->core[1], 0); add(r, tt->core[2], 1); add_number(r, norm, 1);
        add_number(r, (double)round->core[1]->shape[0], 0);
    }
    tn_tensor_destroy(dense);
    tn_tt_destroy(round); tn_tt_destroy(twice); tn_tt_destroy(tt);
    return tn_ctx_status(ctx);
}

static tn_status with_hosvd(tn_ctx *ctx, const data *d, double s, results *r)
{
    tn_hosvd_desc   desc = ZERO;
    tn_hosvd_result h;
    desc.axis[0].rank = 1;
    tn_status status = tn_hosvd(ctx, scaled(ctx, 3, EDGE, EDGE, EDGE, s, d->block), &desc, &h);
    if (status != TN_OK) { CHECK(!h.core && !h.factor[0] && !h.values[0]); return status; }
    add(r, h.values[0], 1); add(r, h.factor[0], 0); add_number(r, h.error, 0); add_number(r, h.bound, 0);
    tn_hosvd_destroy(&h);
    return TN_OK;
}

static tn_status with_als(tn_ctx *ctx, const data *d, double s, results *r)
{
    tn_cp_als_desc   desc = ZERO;
    tn_cp_als_result c;
    desc.terms = 2;
    desc.tol = 1e-14;
    tn_status status = tn_cp_als(ctx, scaled(ctx, 3, EDGE, EDGE, EDGE, s, d->block), &desc, &c);
    if (status != TN_OK) { CHECK(!c.weights && !c.factor[0]); return status; }
    add(r, c.weights, 1); add(r, c.factor[0], 0);
    tn_cp_als_destroy(&c);
    return TN_OK;
}

static tn_status with_joint(tn_ctx *ctx, const data *d, double s, results *r)
{
    tn_joint_eigh_desc   desc = ZERO;
    tn_joint_eigh_result j;
    desc.tol = 1e-14;
    desc.sweeps = 400;
    tn_status status = tn_joint_eigh(ctx, scaled(ctx, 3, 2, SIDE, SIDE, s, d->symmetric), &desc, &j);
    if (status != TN_OK) { CHECK(!j.vectors && !j.values && !j.off); return status; }
    add(r, j.values, 1); add(r, j.off, 0); add(r, j.shared, 0);
    tn_joint_eigh_destroy(&j);
    return TN_OK;
}

static tn_status with_ica(tn_ctx *ctx, const data *d, double s, results *r)
{
    tn_ica_desc   desc = ZERO;
    tn_ica_result f;
    desc.tol = 1e-10;
    tn_status status = tn_ica(ctx, scaled(ctx, 2, SAMPLES, 2, 0, s, d->mixed), &desc, &f);
    if (status != TN_OK) { CHECK(!f.components && !f.mixing && !f.mean); return status; }
    add(r, f.components, -1); add(r, f.mixing, 1); add(r, f.whitening, -1); add(r, f.mean, 1); add(r, f.contrast, 0);
    tn_ica_destroy(&f);
    return TN_OK;
}

static const struct { const char *name; tn_status (*run)(tn_ctx *, const data *, double, results *); } all[] = {
    {"eigh", with_eigh}, {"qr", with_qr}, {"qr", with_pivot}, {"svd", with_svd}, {"svd", with_krylov}, {"svd", with_random},
    {"lstsq", with_lstsq}, {"eig", with_eig}, {"lanczos", with_lanczos}, {"tt_", with_tt}, {"hosvd", with_hosvd},
    {"cp_als", with_als}, {"joint_eigh", with_joint}, {"ica", with_ica}};

/* s A has the results of A, scaled, wherever they fit the dtype: each number as exact as the largest of its tensor. Where
   one does not fit, the call fails and names itself; no infinity and no NaN is ever a result. */
TEST(any_scale)
{
    static const double scales[2][5] = {{1e-300, 1e-150, 1e150, 1e300, 1e308}, {1e-38, 1e-30, 1e30, 1e38, 3e38}};
    static results base, now;
    const data     d = made();
    tn_ctx        *exact = ctx_of(TN_F64);
    int            refused = 0, fitted = 0;
    for (int f64 = 0; f64 < 2; f64++) {
        const double most = f64 ? 1.7976e308 : 3.4028e38, least = f64 ? 5e-324 : 1.5e-45;
        tn_ctx      *ctx = ctx_of(f64 ? TN_F64 : TN_F32);
        double       worst = 0;
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
            base.count = base.groups = 0;
            REQUIRE(CHECK_STATUS(all[k].run(exact, &d, 1, &base), TN_OK));
            for (int c = 0; c < 5; c++) {
                const double s = scales[f64 ? 0 : 1][c];
                bool         fits = true;
                for (int64_t i = 0; i < base.count; i++)
                    if (base.power[i] && log(fabs(base.x[i])) + base.power[i] * log(s) >= log(most)) fits = false;
                now.count = now.groups = 0;
                tn_status status = all[k].run(ctx, &d, s, &now);
                CHECK_STATUS(status, fits ? TN_OK : TN_ERR_NONFINITE);
                if ((status == TN_OK) != fits) printf("%s, scale %g: %s\n", all[k].name, s, tn_ctx_error(ctx));
                if (status != TN_OK) {
                    char message[32];
                    snprintf(message, sizeof message, "%s: a ", all[k].name);
                    if (strcmp(all[k].name, "tt_") != 0) CHECK_ERROR(ctx, TN_ERR_NONFINITE, message);
                    refused++;
                    tn_ctx_clear_error(ctx);
                    continue;
                }
                fitted++;
                if (!CHECK_INT(now.count, base.count)) continue;
                for (int64_t i = 0, j; i < base.count; i = j) {
                    const double factor = base.power[i] ? base.power[i] > 0 ? s : 1 / s : 1;
                    double       size = 0, off = 0;
                    for (j = i; j < base.count && base.group[j] == base.group[i]; j++) {
                        test_raise(&off, fabs(now.x[j] / factor - base.x[j]));
                        if (fabs(base.x[j]) > size) size = fabs(base.x[j]);
                    }
                    if (off > (f64 ? 1e-10 : 1e-4) * size + least / factor)
                        printf("%s, scale %g, tensor %d: off by %g of %g\n", all[k].name, s, (int)base.group[i], off, size);
                    test_raise(&worst, off / (size + least / factor / (f64 ? 1e-10 : 1e-4) + (size > 0 ? 0 : 1)));
                }
            }
        }
        WORST(f64 ? "at any scale, F64" : "at any scale, F32", worst, f64 ? 1e-10 : 1e-4);
        CLOSE_CTX(ctx);
    }
    printf("%d results fitted, %d were refused\n", fitted, refused);
    CHECK(refused >= 10 && fitted >= 80);
    tn_ctx_destroy(exact);
}

/* 1 + a cycle of 1e-20, 1e40 and 1e-20: beside its diagonal the small elements were overlooked, and the matrix not
   balanced. The values are 1 + the cube roots of 1. */
TEST(balance_beside_a_large_diagonal)
{
    static const double a[9] = {1, 1e-20, 0, 0, 1, 1e40, 1e-20, 0, 1};
    static const double expected[6] = {2, 0, 0.5, 0.86602540378443865, 0.5, -0.86602540378443865};
    tn_ctx       *ctx = ctx_of(TN_F64);
    tn_eig_result e;
    double        l[6], worst = 0;
    REQUIRE(CHECK_STATUS(tn_eig(ctx, scaled(ctx, 2, 3, 3, 0, 1, a), NULL, &e), TN_OK));
    CHECK_STATUS(tn_read(e.values, TN_F64, l, 6), TN_OK);
    for (int i = 0; i < 6; i++) test_raise(&worst, fabs(l[i] - expected[i]));
    WORST("values of a badly scaled cycle", worst, 1e-14);
    tn_eig_destroy(&e);
    CLOSE_CTX(ctx);
}

/* Columns whose squares underflow are ordered by length as all others; a ridge far below rounding errors is no rank. */
TEST(tiny_columns_and_ridges)
{
    static const double lengths[6] = {1e-200, 1, 1e-180, 1e-300, 1e-3, 1e-190}, order[6] = {1, 4, 2, 5, 0, 3};
    static const double twice[4] = {1, 1, 1, 1};
    tn_ctx         *ctx = ctx_of(TN_F64);
    uint64_t        seed = 3;
    double          a[48], found[6], r[36], x[2], b[2] = {1, 3};
    tn_qr_desc      desc = ZERO;
    tn_qr_result    f;
    tn_lstsq_desc   ld = ZERO;
    tn_lstsq_result l;
    desc.pivot = true;
    for (int i = 0; i < 48; i++) a[i] = lengths[i % 6] * (i / 6 == i % 6 ? 2 : 0.1 * test_random_real(&seed));
    REQUIRE(CHECK_STATUS(tn_qr(ctx, scaled(ctx, 2, 8, 6, 0, 1, a), &desc, &f), TN_OK));
    CHECK_STATUS(tn_read(f.order, TN_F64, found, 6), TN_OK);
    CHECK_STATUS(tn_read(f.r, TN_F64, r, 36), TN_OK);
    for (int i = 0; i < 6; i++) CHECK(found[i] == order[i] && (i == 0 || r[7 * i] < r[7 * i - 7]));
    CHECK_INT(f.rank, 2);
    tn_qr_destroy(&f);
    for (int k = 0; k < 3; k++) {                     /* x0 = x1 = 1, the shortest of all; with 1e-2 a little shorter */
        ld.ridge = k == 0 ? 0 : k == 1 ? 1e-40 : 1e-2;
        tn_tensor *m = scaled(ctx, 2, 2, 2, 0, 1, twice), *right = scaled(ctx, 1, 2, 0, 0, 1, b);
        REQUIRE(CHECK_STATUS(tn_lstsq(ctx, m, right, &ld, &l), TN_OK));
        CHECK_STATUS(tn_read(l.x, TN_F64, x, 2), TN_OK);
        CHECK_INT(l.rank, k == 2 ? 2 : 1);
        CHECK_NEAR(x[0], k == 2 ? 4 / 4.01 : 1, 1e-14); CHECK_NEAR(x[1], k == 2 ? 4 / 4.01 : 1, 1e-14);
        tn_lstsq_destroy(&l);
    }
    CLOSE_CTX(ctx);
}

/* No matrix at all: the extents are those that the rules allow. An order that does not exist is refused. */
TEST(batches_of_none)
{
    tn_ctx        *ctx = ctx_of(TN_F64);
    tn_eigh_desc   d;
    tn_eigh_result e;
    for (int k = 0; k < 4; k++) {
        memset(&d, 0, sizeof d);
        if (k & 1) d.top = 3;
        if (k & 2) d.truncation.rank = 2;
        REQUIRE(CHECK_STATUS(tn_eigh(ctx, tn_tensor_3d(ctx, TN_REAL, 0, 4, 4), &d, &e), TN_OK));
        CHECK_INT(e.values->shape[1], k == 0 ? 4 : k == 1 ? 3 : 2);
        CHECK_INT(e.vectors->shape[1], e.values->shape[1]);
        CHECK_INT(e.vectors->shape[2], 4);
        tn_eigh_destroy(&e);
    }
    d.order = (tn_eigh_order)7;
    FAILS(ctx, tn_eigh(ctx, tn_tensor_2d(ctx, TN_REAL, 2, 2), &d, &e), TN_ERR_ARG, "eigh: order is 7, expected 0 to 1");
    CLOSE_CTX(ctx);
}

/* The norm of a train with an axis of no elements is 0, whatever the other cores hold. */
TEST(trains_of_none)
{
    static const double ones[4] = {1, 1, 1, 1};
    tn_ctx    *ctx = ctx_of(TN_F64);
    tn_tensor *core[3];
    tn_tt     *tt, *less;
    double     norm = 1;
    core[0] = scaled(ctx, 3, 1, 2, 2, 1, ones);
    core[1] = tn_tensor_3d(ctx, TN_REAL, 2, 0, 1);
    core[2] = scaled(ctx, 3, 1, 2, 1, 1, ones);
    REQUIRE((tt = tn_tt_create(ctx, 3, core)) != NULL);
    CHECK_STATUS(tn_tt_norm(tt, &norm), TN_OK);
    CHECK(norm == 0);
    REQUIRE((less = tn_tt_round(tt, NULL)) != NULL);
    CHECK(less->core[0]->shape[2] == 1 && less->core[1]->shape[1] == 0 && less->error == 0);
    tn_tt_destroy(less);
    tn_tt_destroy(tt);
    CLOSE_CTX(ctx);
}

/* Each argument NULL: a message that names the function and the argument, if there is a context; results are
   NULL. */
TEST(null_arguments)
{
    enum { EIGH, QR, LSTSQ, SVD, EIG, LANCZOS, HOSVD, ALS, JOINT, ICA, ALL };
    static const char *const names[ALL] = {"eigh", "qr", "lstsq", "svd", "eig", "lanczos", "hosvd", "cp_als", "joint_eigh",
                                           "ica"};
    static const double two[2] = {1, 2}, square[4] = {1, 2, 2, 1};
    union {
        tn_eigh_result eigh; tn_qr_result qr; tn_lstsq_result lstsq; tn_svd_result svd; tn_eig_result eig;
        tn_lanczos_result lanczos; tn_hosvd_result hosvd; tn_cp_als_result als; tn_joint_eigh_result joint;
        tn_ica_result ica;
    } out, *to;
    tn_ctx        *ctx = ctx_of(TN_F64);
    tn_tensor     *matrix = scaled(ctx, 2, 2, 2, 0, 1, square), *batch = scaled(ctx, 3, 1, 2, 2, 1, square);
    tn_tensor     *right = scaled(ctx, 1, 2, 0, 0, 1, two);
    tn_cp_als_desc als = ZERO;
    product        p;
    als.terms = 1;
    p.a = square;
    p.scale = 1;
    for (int op = 0; op < ALL; op++)
        for (int missing = 0; missing < 3; missing++) {              /* out, the tensor, the context */
            const tn_tensor *a = missing == 1 ? NULL : op == JOINT ? batch : matrix;
            char       message[64];
            tn_status  s;
            bool       left = false;
            to = missing == 0 ? NULL : &out;
            tn_ctx *where = missing == 2 ? NULL : ctx;
            memset(&out, 1, sizeof out);
            switch (op) {
            case EIGH:    s = tn_eigh(where, a, NULL, to ? &to->eigh : NULL); break;
            case QR:      s = tn_qr(where, a, NULL, to ? &to->qr : NULL); break;
            case LSTSQ:   s = tn_lstsq(where, a, right, NULL, to ? &to->lstsq : NULL); break;
            case SVD:     s = tn_svd(where, a, NULL, to ? &to->svd : NULL); break;
            case EIG:     s = tn_eig(where, a, NULL, to ? &to->eig : NULL); break;
            case LANCZOS: s = tn_lanczos(where, 2, missing == 1 ? NULL : times, &p, NULL, to ? &to->lanczos : NULL); break;
            case HOSVD:   s = tn_hosvd(where, a, NULL, to ? &to->hosvd : NULL); break;
            case ALS:     s = tn_cp_als(where, a, &als, to ? &to->als : NULL); break;
            case JOINT:   s = tn_joint_eigh(where, a, NULL, to ? &to->joint : NULL); break;
            default:      s = tn_ica(where, a, NULL, to ? &to->ica : NULL); break;
            }
            CHECK_STATUS(s, TN_ERR_ARG);
            snprintf(message, sizeof message, "%s: %s is NULL", names[op],
                     missing == 0 ? "out" : op == LANCZOS ? "fn" : op == ICA ? "x" : "a");
            if (missing < 2) CHECK_ERROR(ctx, TN_ERR_ARG, message);
            CHECK_CTX(ctx);
            if (!to) continue;
            switch (op) {                                           /* no pointer is left, and nothing to free */
            case EIGH:    left = to->eigh.values || to->eigh.vectors; tn_eigh_destroy(&to->eigh); break;
            case QR:      left = to->qr.q || to->qr.r; tn_qr_destroy(&to->qr); break;
            case LSTSQ:   left = to->lstsq.x || to->lstsq.residual; tn_lstsq_destroy(&to->lstsq); break;
            case SVD:     left = to->svd.u || to->svd.s || to->svd.vt; tn_svd_destroy(&to->svd); break;
            case EIG:     left = to->eig.values || to->eig.right; tn_eig_destroy(&to->eig); break;
            case LANCZOS: left = to->lanczos.values || to->lanczos.vectors; tn_lanczos_destroy(&to->lanczos); break;
            case HOSVD:   left = to->hosvd.core || to->hosvd.factor[0]; tn_hosvd_destroy(&to->hosvd); break;
            case ALS:     left = to->als.weights || to->als.factor[0]; tn_cp_als_destroy(&to->als); break;
            case JOINT:   left = to->joint.vectors || to->joint.values; tn_joint_eigh_destroy(&to->joint); break;
            default:      left = to->ica.components || to->ica.mixing; tn_ica_destroy(&to->ica); break;
            }
            CHECK(!left);
        }
    tn_eigh_destroy(NULL); tn_qr_destroy(NULL); tn_lstsq_destroy(NULL); tn_svd_destroy(NULL); tn_eig_destroy(NULL);
    tn_lanczos_destroy(NULL); tn_hosvd_destroy(NULL); tn_cp_als_destroy(NULL); tn_joint_eigh_destroy(NULL);
    tn_ica_destroy(NULL);
    FAILS(ctx, tn_lstsq(ctx, matrix, NULL, NULL, &out.lstsq), TN_ERR_ARG, "lstsq: b is NULL");
    tn_ctx_destroy(ctx);
}

TEST(null_arguments_of_trains)
{
    static const double numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    tn_ctx *ctx = ctx_of(TN_F64);
    tn_tt  *tt = tn_tt_svd(ctx, scaled(ctx, 3, 2, 2, 2, 1, numbers), 0, NULL, NULL);
    int64_t index[3] = {0, 0, 0};
    double  value = 7;
    CHECK(!tn_tt_svd(NULL, NULL, 0, NULL, NULL) && !tn_tt_create(NULL, 1, NULL) && !tn_tt_round(NULL, NULL));
    CHECK(!tn_tt_add(NULL, NULL) && !tn_tt_scale(NULL, 1) && !tn_tt_dense(NULL));
    CHECK_STATUS(tn_tt_inner(NULL, NULL, &value), TN_ERR_ARG);
    CHECK(value != value);
    CHECK_STATUS(tn_tt_norm(NULL, &value), TN_ERR_ARG);
    CHECK_STATUS(tn_tt_elements(NULL, 1, index, &value), TN_ERR_ARG);
    CHECK_CTX(ctx);
    REFUSED(ctx, tn_tt_create(ctx, 1, NULL), TN_ERR_ARG, "tt_create: cores is NULL");
    REFUSED(ctx, tn_tt_add(tt, NULL), TN_ERR_ARG, "tt_add: b is NULL, expected a train");
    REFUSED(ctx, tn_tt_add(NULL, tt), TN_ERR_ARG, "tt_add: a is NULL, expected a train");
    FAILS(ctx, tn_tt_inner(tt, tt, NULL), TN_ERR_ARG, "tt_inner: inner is NULL");
    FAILS(ctx, tn_tt_norm(tt, NULL), TN_ERR_ARG, "tt_norm: norm is NULL");
    FAILS(ctx, tn_tt_elements(tt, 1, NULL, &value), TN_ERR_ARG, "tt_elements: index is NULL");
    FAILS(ctx, tn_tt_elements(tt, 1, index, NULL), TN_ERR_ARG, "tt_elements: values is NULL");
    FAILS(ctx, tn_tt_elements(tt, -1, index, &value), TN_ERR_ARG, "tt_elements: count is -1, expected 0 or more");
    CHECK_STATUS(tn_tt_elements(tt, 0, NULL, NULL), TN_OK);
    CHECK(tn_truncation_count(NULL, 3, NULL, &value) == 0 && value == 0 && tn_effective_rank(NULL, 3) == 0);
    tn_tt_destroy(NULL);
    tn_tt_destroy(tt);
    CLOSE_CTX(ctx);
}

TEST_MAIN(any_scale, balance_beside_a_large_diagonal, tiny_columns_and_ridges, batches_of_none, trains_of_none,
          null_arguments, null_arguments_of_trains)
