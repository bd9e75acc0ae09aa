/* test_scale.c: operators of any scale, order and size: inner products from the factors against loops over dense tensors, in
   ordinary ranges and far outside of them; composition and folding of one slot; marks. */

#include "world.h"

enum { ROOMS = 20000 };
static double *rooms[ROOMS];
static int     rooms_used;

static double *room(int64_t n)                                        /* n zeros, until tidy */
{
    double *p = (double *)calloc((size_t)n + 1, sizeof *p);
    if (rooms_used == ROOMS) abort();
    return rooms[rooms_used++] = p;
}

static void tidy(void) { while (rooms_used > 0) free(rooms[--rooms_used]); }

static bool open_world(world *w, tn_dtype dtype, uint64_t seed) { return open_on(w, dtype, seed, 1, NULL); }

static void leave(world *w)
{
    close_world(w);
    tidy();
}

static void fresh(world *w)
{
    tn_cp_release(w->ctx, 0, NULL);
    tn_ctx_reset(w->ctx);
    tidy();
}

static const tn_dtype both[] = {TN_F64, TN_F32};

static void report(const char *what, tn_dtype dtype, double worst)
{
    char name[128];
    snprintf(name, sizeof name, "%s %s", what, dtype == TN_F64 ? "F64" : "F32");
    WORST(name, worst, dtype == TN_F64 ? 4e-14 : 2e-6);
}

static tn_tensor *tensor(world *w, int rank, int64_t n, int64_t m, const double *values)
{
    tn_tensor *t = rank == 1 ? tn_tensor_1d(w->ctx, TN_REAL, n) : tn_tensor_2d(w->ctx, TN_REAL, n, m);
    CHECK(t && tn_write(t, TN_F64, values, rank == 1 ? n : n * m) == TN_OK);
    return t;
}

static double *noise(world *w, int64_t n)
{
    double *v = room(n);
    for (int64_t i = 0; i < n; i++) v[i] = test_random_real(&w->seed);
    return v;
}

static tn_tensor *any_matrix(world *w, int64_t n, int64_t m) { return tensor(w, 2, n, m, noise(w, n * m)); }
static tn_tensor *any_vector(world *w, int64_t n)            { return tensor(w, 1, n, 0, noise(w, n)); }

static double *host(const tn_tensor *t)
{
    int64_t n = tn_tensor_count(t);
    double *v = room(n);
    CHECK(t && tn_read(t, TN_F64, v, n) == TN_OK);
    return v;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* p_scale[o], f_scale[k]: what the random entries of P and of factor k are multiplied with */
static tn_cp *scaled_cp(world *w, int order, int64_t out, int64_t terms, int64_t n, bool constant, double p_scale,
                        const double *f_scale)
{
    tn_tensor *f[TN_CP_MAX_ORDER], *p;
    double    *v = noise(w, out * terms);
    for (int64_t i = 0; i < out * terms; i++) v[i] *= p_scale;
    p = tensor(w, 2, out, terms, v);
    for (int k = 0; k < order; k++) {
        v = noise(w, terms * n);
        for (int64_t i = 0; i < terms * n; i++) v[i] *= f_scale ? f_scale[k] : 1;
        f[k] = tensor(w, 2, terms, n, v);
    }
    return tn_cp_create(w->ctx, order, p, f, constant ? TN_CP_INPUT_CONSTANT : TN_CP_INPUT_PLAIN);
}

static tn_cp *any_cp(world *w, int order, int64_t out, int64_t terms, int64_t n, bool constant)
{
    return scaled_cp(w, order, out, terms, n, constant, 1, NULL);
}

static int64_t inputs_of(const tn_cp *cp)
{
    int64_t n = 1;
    for (int k = 0; k < cp->order; k++) n *= cp->in[k];
    return n;
}

/* B[o,i_0,..] = sum_h P[o,h] prod_k F_k[h,i_k] */
static double *plain_dense(const tn_cp *cp)
{
    int64_t inputs = inputs_of(cp);
    double *dense = room(cp->out * inputs), *p = host(cp->p), *f[TN_CP_MAX_ORDER];
    for (int k = 0; k < cp->order; k++) f[k] = host(cp->f[k]);
    for (int64_t o = 0; o < cp->out; o++)
        for (int64_t at = 0; at < inputs; at++)
            for (int64_t h = 0; h < cp->terms; h++) {
                double  product = p[o * cp->terms + h];
                int64_t rest = at;
                for (int k = cp->order - 1; k >= 0; rest /= cp->in[k--]) product *= f[k][h * cp->in[k] + rest % cp->in[k]];
                dense[o * inputs + at] += product;
            }
    return dense;
}

/* The mean over all orders of the indices, by visiting each pair of an index tuple and one of its permutations. */
static void add_permutations(double *to, const double *dense, int64_t n, int order, int at, int64_t *index, int *slot, double scale)
{
    if (at == order) {
        int64_t from = 0, into = 0;
        for (int k = 0; k < order; k++) { from = from * n + index[k]; into = into * n + index[slot[k]]; }
        to[into] += scale * dense[from];
        return;
    }
    for (int k = at; k < order; k++) {
        int t = slot[at]; slot[at] = slot[k]; slot[k] = t;
        add_permutations(to, dense, n, order, at + 1, index, slot, scale / (order - at));
        t = slot[at]; slot[at] = slot[k]; slot[k] = t;
    }
}

static double *plain_symmetric(const tn_cp *cp)
{
    int64_t inputs = inputs_of(cp), n = cp->in[0];
    double *dense = plain_dense(cp), *s = room(cp->out * inputs);
    for (int64_t o = 0; o < cp->out; o++)
        for (int64_t at = 0; at < inputs; at++) {
            int64_t index[TN_CP_MAX_ORDER], rest = at;
            int     slot[TN_CP_MAX_ORDER];
            for (int k = cp->order - 1; k >= 0; rest /= n) { index[k] = rest % n; slot[k] = k; k--; }
            add_permutations(s + o * inputs, dense + o * inputs, n, cp->order, 0, index, slot, 1);
        }
    return s;
}

/* ---- inner products of every order --------------------------------------------------------- */

TEST(comparisons_of_every_order)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double gram = 0, inner = 0, norm = 0, cosine = 0, symmetric = 0;
        if (!open_world(&w, both[d], 11)) return;
        for (int round = 0; round < 24; round++) {
            int      order = 1 + round % 4;
            int64_t  n = test_random_int(&w.seed, 1, order < 3 ? 9 : 4), out = test_random_int(&w.seed, 1, 4);
            tn_cp   *a = any_cp(&w, order, out, test_random_int(&w.seed, 0, 9), n, round & 4);
            tn_cp   *b = any_cp(&w, order, out, test_random_int(&w.seed, 1, 9), n, round & 4), *sym = tn_cp_symmetrise(a);
            double  *s = plain_symmetric(a), *t = plain_symmetric(b), value, aa, bb, *g = room(out * out);
            int64_t  size = inputs_of(a);
            tn_tensor *found = tn_cp_gram(a, b);
            aa = dot(s, s, out * size);
            bb = dot(t, t, out * size);
            for (int64_t o = 0; o < out; o++)
                for (int64_t q = 0; q < out; q++) g[o * out + q] = dot(s + o * size, t + q * size, size);
            if (!CHECK(found != NULL) || !CHECK(sym != NULL)) break;
            CHECK_INT(sym->terms, a->terms * (order == 1 ? 1 : order == 2 ? 2 : order == 3 ? 6 : 24));
            test_raise(&symmetric, test_max_error(plain_dense(sym), s, out * size));
            for (int64_t i = 0; i < out * out; i++)
                test_raise(&gram, fabs(host(found)[i] - g[i]) / sqrt(aa > 0 ? aa * bb : bb * bb));
            CHECK_STATUS(tn_cp_inner(a, b, &value), TN_OK);
            test_raise(&inner, fabs(value - dot(s, t, out * size)) / sqrt(aa > 0 ? aa * bb : bb * bb));
            CHECK_STATUS(tn_cp_norm(a, &value), TN_OK);
            test_raise(&norm, fabs(value - sqrt(aa)) / (aa > 0 ? sqrt(aa) : 1));
            CHECK_STATUS(tn_cp_cosine(a, b, &value), TN_OK);
            if (aa > 0) test_raise(&cosine, fabs(value - dot(s, t, out * size) / sqrt(aa * bb)));
            else CHECK(value != value);
            tn_tensor_destroy(found);
            fresh(&w);
        }
        report("gram, orders 1 to 4", both[d], gram);
        report("inner, orders 1 to 4", both[d], inner);
        report("norm, orders 1 to 4", both[d], norm);
        report("cosine, orders 1 to 4", both[d], cosine);
        report("symmetrise, orders 1 to 4", both[d], symmetric);
        leave(&w);
    }
}

/* More terms than a block has, and blocks of an operator that is not held as a whole. */
TEST(more_terms_than_a_block)
{
    world   w;
    double  worst = 0;
    int64_t terms[2] = {301, 2100}, n[2] = {3, 1600};           /* the second does not fit as a whole */
    if (!open_world(&w, TN_F64, 13)) return;
    for (int i = 0; i < 2; i++) {
        tn_cp  *cp = any_cp(&w, 2, 2, terms[i], n[i], false), *same = tn_cp_symmetrise(cp);
        double  norm, other, inner, mixed;
        if (test_leave_out(i == 1 && test_small(), "an operator of many terms")) continue;
        CHECK_STATUS(tn_cp_norm(cp, &norm), TN_OK);
        CHECK_STATUS(tn_cp_inner(same, cp, &mixed), TN_OK);      /* two operators: all blocks, not half of them */
        if (i == 0) { other = sqrt(dot(plain_symmetric(cp), plain_symmetric(cp), 2 * 9)); inner = norm * norm; }
        else {
            tn_tensor *gram = tn_cp_gram(cp, cp);
            other = sqrt(host(gram)[0] + host(gram)[3]);
            CHECK_STATUS(tn_cp_inner(cp, cp, &inner), TN_OK);
            tn_tensor_destroy(gram);
        }
        test_raise(&worst, fabs(other / norm - 1));
        test_raise(&worst, fabs(inner / (norm * norm) - 1));
        test_raise(&worst, fabs(mixed / (norm * norm) - 1));
        fresh(&w);
    }
    WORST("norm of many terms", worst, 1e-12);
    leave(&w);
}

/* Entries whose products leave the range of the dtype, and of a double; the norm itself does not. */
TEST(norms_at_any_scale)
{
    static const struct { tn_dtype dtype; double p, w, v; } scales[] = {
        {TN_F32, 1e-10, 1e10, 1}, {TN_F32, 1e-30, 1e30, 1}, {TN_F32, 1e30, 1e-30, 1}, {TN_F32, 1, 1e10, 1e10},
        {TN_F32, 1, 1e30, 1e30}, {TN_F32, 1, 1e-12, 1e-12}, {TN_F32, 1e-30, 1e-30, 1e-30}, {TN_F32, 1, 1e-10, 1e-10},
        {TN_F64, 1e-300, 1e200, 1e100}, {TN_F64, 1e200, 1e-200, 1}, {TN_F64, 1e-100, 1e-100, 1e-100}, {TN_F64, 1e300, 1e-300, 1e300}};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        world   w;
        double  factors[2], norm, plain, inner, cosine, self;
        tn_cp  *small, *cp, *other;
        tn_tensor *c;
        factors[0] = scales[i].w; factors[1] = scales[i].v;
        if (!open_world(&w, scales[i].dtype, 17)) return;
        small = any_cp(&w, 2, 3, 5, 4, false);
        w.seed = 17;
        cp = scaled_cp(&w, 2, 3, 5, 4, false, scales[i].p, factors);
        other = any_cp(&w, 2, 3, 5, 4, false);
        CHECK_STATUS(tn_cp_norm(small, &plain), TN_OK);
        CHECK_STATUS(tn_cp_norm(cp, &norm), TN_OK);
        plain = log(plain) + log(scales[i].p) + log(scales[i].w) + log(scales[i].v);
        CHECK_NEAR(log(norm), plain, scales[i].dtype == TN_F32 ? 1e-6 : 1e-12);
        CHECK_STATUS(tn_cp_cosine(cp, small, &self), TN_OK);
        CHECK_NEAR(self, 1, 1e-6);
        CHECK_STATUS(tn_cp_cosine(cp, other, &cosine), TN_OK);
        CHECK_STATUS(tn_cp_cosine(small, other, &self), TN_OK);
        CHECK_NEAR(cosine, self, 1e-6);
        CHECK_STATUS(tn_cp_inner(cp, small, &inner), TN_OK);
        CHECK(inner > 0);
        c = tn_cp_cosines(cp, cp);
        CHECK_NEAR(host(c)[4], 1, 1e-6);
        tn_tensor_destroy(c);
        leave(&w);
    }
}

/* NaN and infinity, in any factor: an error, never a number. What is too large for its type is one, too. */
TEST(comparisons_of_what_is_not_finite)
{
    for (size_t d = 0; d < 2; d++)
        for (int where = 0; where < 3; where++)
            for (int kind = 0; kind < 2; kind++) {
                world  w;
                double bad = kind ? -HUGE_VAL : (double)NAN, value = 0;
                tn_cp *cp, *good;
                if (!open_world(&w, both[d], 19)) return;
                cp = any_cp(&w, 2, 2, 3, 4, false);
                good = any_cp(&w, 2, 2, 3, 4, false);
                tn_write(tn_slice(tn_slice(where ? cp->f[where - 1] : cp->p, 0, 1, 2), 1, 1, 2), TN_F64, &bad, 1);
                CHECK_STATUS(tn_cp_norm(cp, &value), TN_ERR_NONFINITE);
                CHECK(value != value);
                CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "norm: the operator holds NaN or infinity");
                CHECK_STATUS(tn_cp_inner(good, cp, &value), TN_ERR_NONFINITE);
                CHECK_STATUS(tn_cp_cosine(good, cp, &value), TN_ERR_NONFINITE);
                CHECK(value != value);
                CHECK(!tn_cp_gram(cp, good) && !tn_cp_cosines(cp, good));
                tn_ctx_clear_error(w.ctx);
                leave(&w);
            }
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double huge[2], value;
        if (!open_world(&w, both[d], 19)) return;
        huge[0] = huge[1] = both[d] == TN_F32 ? 1e30 : 1e200;
        if (both[d] == TN_F64) {
            CHECK_STATUS(tn_cp_norm(scaled_cp(&w, 2, 2, 3, 4, false, 1, huge), &value), TN_ERR_NONFINITE);
            CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "norm: the result is beyond the range");
        }
        CHECK(!tn_cp_gram(scaled_cp(&w, 2, 2, 3, 4, false, 1, huge), any_cp(&w, 2, 2, 3, 4, false)));
        CHECK_ERROR(w.ctx, TN_ERR_NONFINITE, "gram: a result is beyond the range of");
        leave(&w);
    }
}

/* Blocks of the term Gram, and no h x h' matrix: a limit that holds the operator and little more. */
TEST(memory_of_a_norm)
{
    tn_desc desc;
    tn_ctx *ctx;
    tn_cp  *cp;
    double  norm;
    tn_tensor *p, *f[2];
    int64_t shape[2] = {6000, 4};
    memset(&desc, 0, sizeof desc);
    desc.max_bytes = (size_t)32 << 20;                              /* 6000 x 6000 floats are 144 MB */
    if (!CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK)) return;
    f[0] = tn_normal(ctx, 2, shape, 0, 1);
    f[1] = tn_normal(ctx, 2, shape, 0, 1);
    p = tn_copy(ctx, tn_transpose(f[0], 0, 1));
    cp = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    CHECK_STATUS(tn_cp_norm(cp, &norm), TN_OK);
    CHECK_STATUS(tn_cp_cosine(cp, cp, &norm), TN_OK);
    CHECK_NEAR(norm, 1, 1e-12);
    CHECK_CTX(ctx);
    tn_ctx_destroy(ctx);
}

/* ---- more pairs than there are, and marks -------------------------------------------------- */

TEST(counts_above_the_rank)
{
    world w;
    if (!open_world(&w, TN_F64, 23)) return;
    for (int i = 0; i < 2; i++) {
        int64_t     n = i ? 9 : 3, most = i ? 4 : 3, k;                   /* min(n, 2 h) */
        tn_cp      *cp = any_cp(&w, 2, 3, 2, n, false), *cut;
        tn_eigen    e;
        tn_spectrum s;
        double      norm, before;
        CHECK_STATUS(tn_cp_norm(cp, &before), TN_OK);
        for (k = most - 1; k <= most + 17; k += 6) {
            CHECK_STATUS(tn_cp_eigen_all(cp, k, &e), TN_OK);
            CHECK_INT(e.count, k < most ? k : most);
            CHECK_INT(e.values->shape[1], e.count);
            tn_eigen_destroy(&e);
            CHECK_STATUS(tn_cp_eigen(cp, any_vector(&w, 3), k, &e), TN_OK);
            CHECK_INT(e.count, k < most ? k : most);
            tn_eigen_destroy(&e);
            CHECK_STATUS(tn_cp_spectrum(cp, k, &s), TN_OK);
            CHECK_INT(s.count, k < most ? k : most);
            tn_spectrum_destroy(&s);
            cut = tn_cp_truncate(cp, k);
            REQUIRE(cut != NULL);
            CHECK_STATUS(tn_cp_norm(cut, &norm), TN_OK);
            if (k >= most) CHECK_NEAR(norm / before, 1, 1e-13);
        }
        fresh(&w);
    }
    leave(&w);
}

TEST(marks_of_operators)
{
    world     w;
    tn_cp    *first, *kept;
    tn_tensor *e, *t;
    uint64_t  mark;
    size_t    blocks;
    double    a, b;
    if (!open_world(&w, TN_F64, 29)) return;
    first = any_cp(&w, 2, 3, 4, 5, false);
    e = any_matrix(&w, 5, 2);
    mark = tn_cp_mark(w.ctx);
    kept = tn_cp_release(w.ctx, mark, tn_cp_fold_in(first, e, NULL));
    blocks = (size_t)w.heap.blocks;
    for (int i = 0; i < 5; i++) {
        uint64_t inner = tn_cp_mark(w.ctx);
        CHECK(tn_cp_fold_out(tn_cp_fold_in(first, e, NULL), any_matrix(&w, 2, 3), NULL) != NULL);
        CHECK(tn_cp_release(w.ctx, inner, NULL) == NULL);
        CHECK_INT(w.heap.blocks, blocks);
    }
    CHECK_STATUS(tn_cp_norm(kept, &a), TN_OK);                 /* older operators and the kept one are alive */
    CHECK_STATUS(tn_cp_norm(first, &a), TN_OK);
    t = tn_cp_gram(first, first);
    CHECK(tn_cp_release(w.ctx, 0, NULL) == NULL);              /* all operators, and no tensor */
    CHECK_NEAR(host(t)[0] + host(t)[4] + host(t)[8], a * a, 1e-12 * a * a);
    CHECK(tn_cp_mark(NULL) == 0 && tn_cp_release(NULL, 0, NULL) == NULL);
    b = 0;
    CHECK_STATUS(tn_cp_norm(any_cp(&w, 2, 1, 1, 1, false), &b), TN_OK);
    CHECK(b > 0);
    leave(&w);
}

/* ---- folding one slot ------------------------------------------------------------------------ */

TEST(folding_one_slot)
{
    for (size_t d = 0; d < 2; d++) {
        world  w;
        double worst = 0;
        if (!open_world(&w, both[d], 31)) return;
        for (int round = 0; round < 24; round++) {
            int        order = 1 + round % 3, slot = (int)test_random_int(&w.seed, 0, order - 1);
            bool       constant = round & 4, bias = round & 8;
            int64_t    n = test_random_int(&w.seed, 1, 5), m = test_random_int(&w.seed, 1, 5), out = 2;
            tn_cp     *cp = any_cp(&w, order, out, 3, n + constant, constant), *folded;
            tn_tensor *e = any_matrix(&w, n, m), *b = bias ? any_vector(&w, n) : NULL, *x[3], *y[3];
            for (int k = 0; k < order; k++) x[k] = y[k] = any_matrix(&w, 4, k == slot ? m : n);
            x[slot] = tn_affine(w.ctx, y[slot], e, b);
            folded = tn_cp_fold_slot(cp, slot, e, b);
            if (!CHECK(folded != NULL)) break;
            CHECK(folded->constant == (constant || bias) && folded->in[slot] == m + (constant || bias));
            test_raise(&worst, test_max_error(host(tn_cp_apply_each(w.ctx, folded, y)), host(tn_cp_apply_each(w.ctx, cp, x)), 4 * out));
            fresh(&w);
        }
        report("folding one slot", both[d], worst);
        leave(&w);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

#define REFUSED(ctx, call, status, part) do { CHECK((call) == NULL); CHECK_ERROR(ctx, status, part); } while (0)

TEST(bad_calls)
{
    world      w;
    double     skew[] = {2, 1, 0, 2}, nan[] = {(double)NAN, 0, 0, 1};
    tn_cp     *cp, *one;
    tn_tensor *x, *p, *f[2];
    if (!open_world(&w, TN_F64, 37)) return;
    cp = any_cp(&w, 2, 2, 3, 2, false);
    one = any_cp(&w, 2, 2, 3, 4, true);
    x = any_matrix(&w, 2, 3);
    REFUSED(w.ctx, tn_cp_apply(w.ctx, cp, x), TN_ERR_SHAPE, "apply: x is [2,3], expected a last extent of 2");
    REFUSED(w.ctx, tn_cp_apply(w.ctx, one, any_matrix(&w, 2, 2)), TN_ERR_SHAPE, "expected a last extent of 4, the operator's inputs, or one less");
    REFUSED(w.ctx, tn_cp_data_metric(cp, tensor(&w, 2, 2, 2, skew)), TN_ERR_ARG, "data_metric: s[1,0] is 0 and s[0,1] is 1, expected");
    REFUSED(w.ctx, tn_cp_data_metric(cp, tensor(&w, 2, 2, 2, nan)), TN_ERR_NONFINITE, "data_metric: s, [2,2], has NaN or infinity");
    p = any_matrix(&w, 2, 4);
    f[0] = any_matrix(&w, 4, 3);
    f[1] = p;
    REFUSED(w.ctx, tn_cp_create(w.ctx, 2, p, f, TN_CP_INPUT_PLAIN), TN_ERR_SHAPE,
            "factor 1 is [2,4], expected [4,in]: one row per term, as p, [2,4], has one column per term");
    REFUSED(w.ctx, tn_cp_fold_slot(cp, 2, x, NULL), TN_ERR_ARG, "fold_slot: slot is 2, expected 0 to 1");
    REFUSED(w.ctx, tn_cp_fold_slot(cp, 1, any_matrix(&w, 3, 2), NULL), TN_ERR_SHAPE, "fold_slot: e is [3,2], expected 2 rows");
    REFUSED(w.ctx, tn_cp_fold_slot(cp, 1, any_matrix(&w, 2, 2), any_vector(&w, 3)), TN_ERR_SHAPE, "fold_slot: b is [3]");
    REFUSED(w.ctx, tn_cp_gram(cp, any_cp(&w, 3, 2, 2, 2, false)), TN_ERR_SHAPE, "gram: the operators have orders 2 and 3");
    CHECK(!tn_cp_fold_slot(NULL, 0, x, NULL));
    leave(&w);
}

TEST_MAIN(comparisons_of_every_order, more_terms_than_a_block, norms_at_any_scale, comparisons_of_what_is_not_finite, memory_of_a_norm,
          counts_above_the_rank, marks_of_operators, folding_one_slot, bad_calls)
