/* test_einsum.c: contractions of many tensors against sums over all labels at once, the planner against known optima,
   and what is refused. tests/data/einsum/cases.tsv has expressions with NumPy's results. */

#include "pool.h"
#include "kit.h"

enum { MOST = 12, LABELS = 26 };

/* ---- the cases of the file -------------------------------------------------------------------------------------- */

static int shape_of(const char **s, int64_t *shape)           /* "2x3", up to ; or a tab */
{
    int rank = 0;
    while (**s >= '0' && **s <= '9') {
        shape[rank++] = strtoll(*s, (char **)(size_t)(const void *)s, 10);
        if (**s == 'x') ++*s;
    }
    return rank;
}

static tn_tensor *case_operand(tn_ctx *ctx, int k, int rank, const int64_t *shape)
{
    double  v[4096];
    int64_t n = 1;
    for (int64_t i = 0; i < rank; i++) n *= shape[i];
    for (int64_t i = 0; i < n; i++) v[i] = (double)((i * (7 + 2 * k) + 3 * k) % 11) - 5;
    return tn_tensor_from(ctx, rank, shape, TN_F64, v);
}

/* One line, as a plan and at once: exactly the values of the file. */
static void file_case(tn_ctx *ctx, const char *line)
{
    tn_tensor    *t[MOST];
    tn_plan_desc  desc = ZERO;
    char          expr[128];
    const int64_t *shapes[MOST];
    int64_t       shape[TN_MAX_RANK], i;
    int           ranks[MOST], n = 0, rank;
    size_t        length = strcspn(line, "\t");
    double        got[4096];
    snprintf(expr, sizeof expr, "%.*s", (int)length, line);
    for (line += length + 1; n < MOST; line++) {
        rank = shape_of(&line, shape);
        t[n] = case_operand(ctx, n, rank, shape);
        REQUIRE(t[n] != NULL);
        ranks[n] = rank;
        shapes[n] = t[n]->shape;
        n++;
        if (*line != ';') break;
    }
    desc.broadcast = true;
    tn_plan   *plan = tn_plan_create(ctx, expr, n, ranks, shapes, &desc);
    tn_tensor *y = plan ? tn_plan_run(plan, n, t) : NULL;
    if (!CHECK_CTX(ctx)) printf("     %s\n", expr);
    REQUIRE(y != NULL);
    line++;
    rank = shape_of(&line, shape);
    CHECK_INT(rank, y->rank);
    for (i = 0; i < rank; i++) CHECK_INT(shape[i], y->shape[i]);
    int64_t count = tn_tensor_count(y);
    CHECK_STATUS(tn_read(y, TN_F64, got, count), TN_OK);
    for (i = 0, line++; i < count; i++) {
        char *end;
        if (!CHECK(strtod(line, &end) == got[i])) printf("     %s element %d: %g\n", expr, (int)i, got[i]);
        line = end + (*end == ',');
    }
    CHECK(*line == '\n' || *line == '\r' || *line == 0);
    tn_plan_destroy(plan);
    desc.broadcast = false;
    if (strcmp(expr, "ij,ij->j") == 0)                        /* its operands have different extents */
        REFUSED(ctx, tn_plan_create(ctx, expr, n, ranks, shapes, &desc), TN_ERR_SHAPE,
                "i has extent 10 in operand 0 but 1 in operand 1");
    y = tn_einsum(ctx, expr, n, t);
    CHECK_CTX(ctx);
    REQUIRE(y != NULL && tn_tensor_count(y) == count);
    {
        double again[4096];
        CHECK_STATUS(tn_read(y, TN_F64, again, count), TN_OK);
        CHECK(memcmp(again, got, sizeof *got * (size_t)count) == 0);
    }
}

TEST(file)
{
    char   path[TEST_PATH];
    size_t n;
    int    cases = 0;
    REQUIRE(test_data("einsum/cases.tsv", path));
    char *text = test_read_file(path, &n);
    REQUIRE(text != NULL);
    for (int pass = 0; pass < 2; pass++) {
        tn_ctx *ctx = ctx_of(pass ? TN_F32 : TN_F64);
        REQUIRE(ctx != NULL);
        for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
            file_case(ctx, line);
            tn_ctx_reset(ctx);
            cases++;
        }
        tn_ctx_destroy(ctx);
    }
    CHECK_INT(cases, 2 * 16);
    free(text);
}

/* ---- random networks against the sum over all labels ------------------------------------------------------------ */

typedef struct net {
    int        n, labels, rank[MOST], out_rank, label[MOST][TN_MAX_RANK], out[TN_MAX_RANK];
    int64_t    extent[LABELS];
    bool       once[MOST][TN_MAX_RANK]; /* the axis has extent 1, and is repeated */
    tn_tensor *t[MOST];
    double    *v[MOST];                 /* their numbers, row-major */
} net;

static int64_t net_extent(const net *a, int k, int i) { return a->once[k][i] ? 1 : a->extent[a->label[k][i]]; }

/* Up to `most` operands, most labels shared by two, some by more or in the result as well; diagonals, private labels,
   extents of one, also of an axis that another operand has whole; zero ones if asked for. */
static void net_make(net *a, uint64_t *seed, int most, int labels, bool zeros)
{
    memset(a, 0, sizeof *a);
    a->n = (int)test_random_int(seed, 1, most);
    a->labels = labels;
    for (int l = 0; l < labels; l++) a->extent[l] = test_random_int(seed, zeros && l % 5 == 4 ? 0 : 1, l % 3 == 0 ? 4 : 3);
    for (int l = 0; l < labels; l++) {
        const int uses = (int)test_random_int(seed, 1, 5);
        bool      whole = false;
        for (int i = 0; i < (uses < 4 ? 2 : uses == 4 ? 1 : 3); i++) {
            int k = (int)test_random_int(seed, 0, a->n - 1);
            if (a->rank[k] == 5) continue;
            a->once[k][a->rank[k]] = whole && test_random_int(seed, 0, 9) == 0;
            a->label[k][a->rank[k]++] = l;
            whole = true;
        }
    }
    for (int l = 0; l < labels; l++) {
        bool used = false;
        for (int k = 0; k < a->n; k++) for (int i = 0; i < a->rank[k]; i++) used = used || a->label[k][i] == l;
        if (used && a->out_rank < 4 && test_random_int(seed, 0, 3) == 0) a->out[a->out_rank++] = l;
    }
    for (int i = a->out_rank - 1; i > 0; i--) {
        int k = (int)test_random_int(seed, 0, i);
        int l = a->out[i]; a->out[i] = a->out[k]; a->out[k] = l;
    }
}

/* Operands of random numbers; every second is a view with transposed axes or negative steps. */
static bool net_tensors(net *a, tn_ctx *ctx, uint64_t *seed, bool watch)
{
    for (int k = 0; k < a->n; k++) {
        int64_t   shape[TN_MAX_RANK], count = 1;
        const int turn = a->rank[k] > 1 && !watch ? (int)test_random_int(seed, 0, 2) : 0;
        for (int i = 0; i < a->rank[k]; i++) count *= shape[i] = net_extent(a, k, i);
        a->v[k] = (double *)malloc(sizeof(double) * (size_t)(count + 1));
        for (int64_t j = 0; j < count; j++) a->v[k][j] = (double)(float)test_random_real(seed);
        if (turn) {
            const int64_t first = shape[0];
            shape[0] = shape[a->rank[k] - 1];
            shape[a->rank[k] - 1] = first;
        }
        tn_tensor *base = tn_tensor_nd(ctx, TN_REAL, a->rank[k], shape);
        if (!base) return false;
        a->t[k] = turn ? tn_transpose(base, 0, -1) : base;
        if (turn == 2 && count > 0) a->t[k] = tn_slice_step(a->t[k], 0, a->t[k]->shape[0] - 1, -1, -1);
        if (!a->t[k] || tn_write(a->t[k], TN_F64, a->v[k], count) != TN_OK) return false;
        if (watch && tn_watch(a->t[k]) != TN_OK) return false;
    }
    return true;
}

static void net_free(net *a) { for (int k = 0; k < a->n; k++) free(a->v[k]); }

/* The sum over all values of all labels; the result's labels first. */
static int64_t net_brute(const net *a, double *y)
{
    int64_t at[LABELS] = {0}, count = 1;
    int     l;
    for (int64_t i = 0; i < a->out_rank; i++) count *= a->extent[a->out[i]];
    for (int64_t i = 0; i < count; i++) y[i] = 0;
    for (l = 0; l < a->labels; l++) {
        bool used = false;
        for (int k = 0; k < a->n; k++) for (int64_t i = 0; i < a->rank[k]; i++) used = used || a->label[k][i] == l;
        if (used && a->extent[l] == 0) return count;
    }
    for (;;) {
        double  product = 1;
        int64_t to = 0;
        for (int k = 0; k < a->n; k++) {
            int64_t from = 0;
            for (int i = 0; i < a->rank[k]; i++) from = from * net_extent(a, k, i) + (a->once[k][i] ? 0 : at[a->label[k][i]]);
            product *= a->v[k][from];
        }
        for (int64_t i = 0; i < a->out_rank; i++) to = to * a->extent[a->out[i]] + at[a->out[i]];
        y[to] += product;
        for (l = a->labels - 1; l >= 0; l--) {
            bool used = false;
            for (int k = 0; k < a->n && !used; k++) for (int64_t i = 0; i < a->rank[k]; i++) used = used || a->label[k][i] == l;
            if (!used) continue;
            if (++at[l] < a->extent[l]) break;
            at[l] = 0;
        }
        if (l < 0) return count;
    }
}

static void net_print(const net *a)
{
    for (int k = 0; k <= a->n; k++) {
        printf("%s", k == 0 ? "     " : k < a->n ? "," : "->");
        for (int i = 0; i < (k < a->n ? a->rank[k] : a->out_rank); i++)
            printf("%c%s", 'a' + (k < a->n ? a->label[k][i] : a->out[i]), k < a->n && a->once[k][i] ? "=1" : "");
    }
    for (int l = 0; l < a->labels; l++) printf(" %c %d", 'a' + l, (int)a->extent[l]);
    printf("\n");
}

/* Runs it as a plan; slices > 0: with half, a quarter .. of the bytes that the whole takes. */
static tn_tensor *net_plan(const net *a, tn_ctx *ctx, size_t max_bytes, tn_plan_cost *cost)
{
    const int     *labels[MOST];
    const int64_t *shapes[MOST];
    tn_plan_desc   desc = ZERO;
    for (int k = 0; k < a->n; k++) {
        labels[k] = a->label[k];
        shapes[k] = a->t[k]->shape;
    }
    desc.max_bytes = max_bytes;
    desc.broadcast = true;
    tn_plan *plan = tn_plan_create_labels(ctx, a->n, a->rank, shapes, labels, a->out_rank, a->out, &desc);
    if (!plan) return NULL;
    *cost = tn_plan_cost_of(plan);
    tn_tensor *y = tn_plan_run(plan, a->n, (tn_tensor *const *)a->t);
    tn_plan_destroy(plan);
    return y;
}

static void random_nets(tn_dtype dtype, int rounds, double bound)
{
    tn_ctx  *ctx = ctx_of(dtype);
    uint64_t seed = 11;
    double   worst = 0, sliced = 0;
    int      slices = 0;
    REQUIRE(ctx != NULL);
    for (int round = 0; round < rounds; round++) {
        static double want[4096], got[4096];
        net           a;
        tn_plan_cost  cost, part;
        const int    *labels[MOST];
        net_make(&a, &seed, MOST, (int)test_random_int(&seed, 1, 9), round % 4 == 0);
        REQUIRE(net_tensors(&a, ctx, &seed, false));
        for (int k = 0; k < a.n; k++) labels[k] = a.label[k];
        int64_t count = net_brute(&a, want);
        tn_tensor *y = tn_einsum_labels(ctx, a.n, a.t, labels, a.out_rank, a.out);
        if (!CHECK_CTX(ctx)) net_print(&a);
        REQUIRE(y != NULL);
        CHECK_INT(tn_tensor_count(y), count);
        CHECK_STATUS(tn_read(y, TN_F64, got, count), TN_OK);
        if (test_raise(&worst, test_max_error(got, want, count)) && worst > bound) net_print(&a);
        y = net_plan(&a, ctx, 0, &cost);
        CHECK(y != NULL && tn_read(y, TN_F64, got, count) == TN_OK);
        test_raise(&worst, test_max_error(got, want, count));
        if (cost.bytes > 128) {
            y = net_plan(&a, ctx, cost.bytes / 2, &part);
            if (y) {
                CHECK(part.bytes <= cost.bytes / 2 && part.slices > 1 && part.flops >= cost.flops);
                CHECK_STATUS(tn_read(y, TN_F64, got, count), TN_OK);
                if (test_raise(&sliced, test_max_error(got, want, count)) && sliced > bound) net_print(&a);
                slices++;
            } else CHECK_ERROR(ctx, TN_ERR_MEMORY, "the least that slicing gives");
        }
        net_free(&a);
        tn_ctx_reset(ctx);
    }
    CHECK(slices > rounds / 100);
    WORST("random networks", worst, bound);
    WORST("random networks, sliced", sliced, bound);
    tn_ctx_destroy(ctx);
}

TEST(networks)
{
    random_nets(TN_F64, test_small() ? 100 : 400, 1e-12);
    random_nets(TN_F32, test_small() ? 100 : 400, 2e-5);
}

/* ---- gradients -------------------------------------------------------------------------------------------------- */

/* sum(weights * einsum) has by central differences the gradients that the tape gives. The sum is linear in each number of
   an operand, so that the differences are exact except for rounding. */
static double net_loss(const net *a, const double *weights, double *y)
{
    const int64_t count = net_brute(a, y);
    double        sum = 0;
    for (int64_t i = 0; i < count; i++) sum += weights[i] * y[i];
    return sum;
}

TEST(gradients)
{
    static double weights[4096], y[4096], got[4096];
    tn_ctx  *ctx = ctx_of(TN_F64);
    uint64_t seed = 5;
    double   worst = 0;
    REQUIRE(ctx != NULL);
    for (int round = 0; round < 60; round++) {
        net        a;
        const int *labels[MOST];
        net_make(&a, &seed, 6, (int)test_random_int(&seed, 1, 6), round % 6 == 0);
        REQUIRE(net_tensors(&a, ctx, &seed, true));
        for (int k = 0; k < a.n; k++) labels[k] = a.label[k];
        for (int64_t i = 0; i < 4096; i++) weights[i] = test_random_real(&seed);
        tn_record(ctx);
        tn_tensor *result = tn_einsum_labels(ctx, a.n, a.t, labels, a.out_rank, a.out);
        REQUIRE(result != NULL);
        int64_t count = tn_tensor_count(result);
        tn_tensor *w = tn_tensor_from(ctx, result->rank, result->shape, TN_F64, weights);
        tn_tensor *flat = tn_sum(ctx, tn_mul(ctx, result, w));
        CHECK_STATUS(tn_backward(ctx, flat), TN_OK);
        CHECK_CTX(ctx);
        CHECK_INT(net_brute(&a, y), count);
        for (int k = 0; k < a.n; k++) {
            const int64_t n = tn_tensor_count(a.t[k]);
            if (!CHECK(a.t[k]->grad != NULL)) { net_print(&a); continue; }
            CHECK_STATUS(tn_read(a.t[k]->grad, TN_F64, got, n), TN_OK);
            for (int64_t i = 0; i < n; i++) {
                const double was = a.v[k][i];
                a.v[k][i] = was + 0.5;
                double up = net_loss(&a, weights, y);
                a.v[k][i] = was - 0.5;
                double down = net_loss(&a, weights, y);
                a.v[k][i] = was;
                if (test_raise(&worst, fabs(up - down - got[i]) / (1 + fabs(got[i]))) && worst > 1e-10) net_print(&a);
            }
        }
        net_free(&a);
        tn_ctx_reset(ctx);
    }
    WORST("gradients", worst, 1e-10);
    tn_ctx_destroy(ctx);
}

/* The same tensor as four operands, |x x^T|^2, by a plan that is sliced while nothing is recorded. */
TEST(gradient_of_a_square)
{
    tn_ctx       *ctx = ctx_of(TN_F64);
    const int     label[4][2] = {{7, 9}, {8, 9}, {8, 2}, {7, 2}}, *labels[4] = {label[0], label[1], label[2], label[3]};
    const int     ranks[4] = {2, 2, 2, 2};
    const int64_t shape[2] = {40, 30}, *shapes[4] = {shape, shape, shape, shape};
    tn_plan_desc  desc = ZERO;
    double        v[1200], g[1200], worst = 0;
    REQUIRE(ctx != NULL);
    desc.max_bytes = 8192;
    tn_plan *plan = tn_plan_create_labels(ctx, 4, ranks, shapes, labels, 0, NULL, &desc);
    REQUIRE(plan != NULL);
    CHECK(tn_plan_cost_of(plan).slices > 1);
    tn_tensor *x = tn_normal(ctx, 2, shape, 0, 1);
    tn_tensor *t[4] = {x, x, x, x};
    tn_tensor *want = tn_scale(ctx, tn_einsum(ctx, "ab,cb,cd->ad", 3, t), 4);
    double     whole = tn_item(tn_plan_run(plan, 4, t));
    CHECK_STATUS(tn_watch(x), TN_OK);
    tn_record(ctx);
    tn_tensor *y = tn_plan_run(plan, 4, t);
    CHECK_STATUS(tn_backward(ctx, y), TN_OK);
    CHECK_NEAR(tn_item(y), whole, 1e-12 * whole);
    REQUIRE(x->grad != NULL && want != NULL);
    CHECK_STATUS(tn_read(want, TN_F64, v, 1200), TN_OK);
    CHECK_STATUS(tn_read(x->grad, TN_F64, g, 1200), TN_OK);
    test_raise(&worst, test_max_error(g, v, 1200));
    WORST("gradient of a square", worst, 1e-13);
    tn_plan_destroy(plan);
    tn_ctx_destroy(ctx);
}

/* ---- the planner ------------------------------------------------------------------------------------------------ */

/* Makes a plan from extents by letter, "a35 b37". */
static tn_plan *plan_of(tn_ctx *ctx, const char *expr, const char *extents, const tn_plan_desc *desc)
{
    int64_t        of[128] = {0}, shape[64][TN_MAX_RANK];
    const int64_t *shapes[64];
    int            ranks[64], n = 0;
    while (*extents) {
        const unsigned char letter = (unsigned char)*extents++;
        of[letter & 127] = strtoll(extents, (char **)(size_t)(const void *)&extents, 10);
        while (*extents == ' ') extents++;
    }
    ranks[0] = 0;
    shapes[0] = shape[0];
    for (const char *e = expr; *e && *e != '-'; e++) {
        if (*e == ',') {
            n++;
            shapes[n] = shape[n];
            ranks[n] = 0;
        } else shape[n][ranks[n]++] = of[*e & 127];
    }
    return tn_plan_create(ctx, expr, n + 1, ranks, shapes, desc);
}

TEST(optima)
{
    tn_ctx *ctx = ctx_of(TN_F64);
    REQUIRE(ctx != NULL);
    tn_plan *plan = plan_of(ctx, "xyf,xtf,ytpf,fr->tpr", "x35 y37 f59 t51 p51 r27", NULL);
    tn_plan_cost c = tn_plan_cost_of(plan);
    CHECK_NEAR(c.flops, 27436062, 0);
    tn_plan_destroy(plan);
    plan = plan_of(ctx, "ab,bc,cd,de,ef->af", "a30 b35 c15 d5 e10 f20", NULL);      /* a chain of matrices */
    c = tn_plan_cost_of(plan);
    CHECK_NEAR(c.flops, 23750, 0);
    CHECK_INT(c.steps, 4);
    tn_plan_destroy(plan);
    plan = plan_of(ctx, "a,ab,bc,cd,de->e", "a64 b64 c64 d64 e64", NULL);           /* two places of 64 numbers, in turn */
    CHECK_INT(tn_plan_cost_of(plan).bytes, 2 * 64 * 8);
    tn_plan_destroy(plan);
    plan = plan_of(ctx, "oh,hi,hj,ok,ki,kj->", "o64 i64 j64 h128 k128", NULL);      /* |B|^2 of a CP form by Gram matrices */
    c = tn_plan_cost_of(plan);
    CHECK(c.flops < 6.4e6 && c.largest < 2e4);
    CHECK_NEAR(c.naive, 6 * 64.0 * 64 * 64 * 128 * 128, 0);
    tn_plan_destroy(plan);
    plan = plan_of(ctx, "a,b,ab->", "a100 b2", NULL);
    c = tn_plan_cost_of(plan);
    CHECK_NEAR(c.flops, 404, 0);
    tn_plan_destroy(plan);
    plan = plan_of(ctx, "aab->b", "a10 b3", NULL);                                  /* thirty additions of the diagonal */
    c = tn_plan_cost_of(plan);
    CHECK_NEAR(c.flops, 30, 0);
    tn_plan_destroy(plan);
    CLOSE_CTX(ctx);
}

/* The least of what is minimised over all trees of a small network, by trying each pair in turn. */
static double least(tn_plan_objective minimize, int n, const uint32_t *legs, uint32_t keep, const double *extent)
{
    double best = n == 1 ? 0 : HUGE_VAL;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            uint32_t next[8], others = keep, both = legs[i] | legs[j];
            double   space = 1, size = 1;
            int      m = 0;
            for (int k = 0; k < n; k++) if (k != i && k != j) { next[m++] = legs[k]; others |= legs[k]; }
            uint32_t left = both & others;
            for (int l = 0; l < 10; l++) {
                if (both >> l & 1) space *= extent[l];
                if (left >> l & 1) size *= extent[l];
            }
            next[m++] = left;
            double cost = least(minimize, m, next, keep, extent);
            if (minimize == TN_PLAN_COST) cost += 64 * size;
            if (minimize != TN_PLAN_SIZE) cost += (left == both ? 1 : 2) * space;
            else if (n > 2) test_raise(&cost, size);
            if (cost < best) best = cost;
        }
    return best;
}

TEST(exact)
{
    tn_ctx  *ctx = ctx_of(TN_F64);
    uint64_t seed = 3;
    double   worst = 0;
    tn_plan_desc desc = ZERO;
    REQUIRE(ctx != NULL);
    for (int round = 0; round < 60; round++) {
        const int      n = (int)test_random_int(&seed, 2, 6);
        int            label[6][4], ranks[6], out[2], uses[10] = {0};
        const int     *labels[6];
        int64_t        shape[6][4], extents[10];
        const int64_t *shapes[6];
        uint32_t       legs[8], keep = 0;
        double         extent[10];
        int            kept = 0;
        for (int l = 0; l < 10; l++) extent[l] = (double)(extents[l] = test_random_int(&seed, 2, 9));
        for (int k = 0; k < n; k++) {
            legs[k] = 0;
            ranks[k] = (int)test_random_int(&seed, 1, 4);
            for (int i = 0; i < ranks[k]; i++) {
                int l = (int)test_random_int(&seed, 0, 9);
                while (legs[k] >> l & 1) l = (l + 1) % 10;
                legs[k] |= 1u << l;
                uses[l]++;
                label[k][i] = l;
                shape[k][i] = extents[l];
            }
            labels[k] = label[k];
            shapes[k] = shape[k];
        }
        for (int l = 0; l < 10 && kept < 2; l++)
            if (uses[l] > 0 && test_random_int(&seed, 0, 3) == 0) {
                out[kept++] = l;
                keep |= 1u << l;
            }
        for (int k = 0; k < n; k++)                                 /* private labels go first */
            for (int l = 0; l < 10; l++) if (uses[l] == 1 && !(keep >> l & 1)) legs[k] &= ~(1u << l);
        desc.minimize = (tn_plan_objective)(round % 3);
        double   want = least(desc.minimize, n, legs, keep, extent);
        tn_plan *plan = tn_plan_create_labels(ctx, n, ranks, shapes, labels, kept, out, &desc);
        REQUIRE(plan != NULL);
        tn_plan_cost c = tn_plan_cost_of(plan);
        for (int k = 0; k < n; k++) {                               /* the sums over private labels are not in `want` */
            double all = 1, left = 1;
            for (int i = 0; i < ranks[k]; i++) {
                all *= extent[label[k][i]];
                if (legs[k] >> label[k][i] & 1) left *= extent[label[k][i]];
            }
            if (left == all) continue;
            if (desc.minimize != TN_PLAN_SIZE) want += all + (desc.minimize == TN_PLAN_COST ? 64 : 0) * left;
            else test_raise(&want, left);
        }
        if (desc.minimize == TN_PLAN_SIZE) test_raise(&worst, fabs(c.largest - want));
        else test_raise(&worst, fabs((c.flops + (desc.minimize == TN_PLAN_COST ? 64 : 0) * c.written) / want - 1));
        tn_plan_destroy(plan);
    }
    WORST("cost against all trees", worst, 1e-13);
    tn_ctx_destroy(ctx);
}

/* A chain of 16 tensors, too many for the exact search, with 8 open legs of extent 3 and bonds of 2: whatever is multiplied last, one
   operand has half of the legs, so that 2 * 3^4 elements are the least. The result itself, which is larger, does not count. */
TEST(least_size_of_a_chain)
{
    enum { N = 16 };
    tn_ctx        *ctx = ctx_of(TN_F64);
    int            label[N][3], ranks[N], out[N], kept = 0;
    const int     *labels[N];
    int64_t        shape[N][3];
    const int64_t *shapes[N];
    tn_plan_desc   desc = ZERO;
    REQUIRE(ctx != NULL);
    for (int k = 0; k < N; k++) {
        int n = 0;
        if (k > 0)     { label[k][n] = k;       shape[k][n++] = 2; }
        if (k < N - 1) { label[k][n] = k + 1;   shape[k][n++] = 2; }
        if (k % 2 == 0) { label[k][n] = 100 + k; shape[k][n++] = 3; out[kept++] = 100 + k; }
        ranks[k] = n;
        labels[k] = label[k];
        shapes[k] = shape[k];
    }
    desc.minimize = TN_PLAN_SIZE;
    for (desc.samples = 1; desc.samples <= 8; desc.samples++) {
        desc.seed = (uint64_t)desc.samples;
        tn_plan *plan = tn_plan_create_labels(ctx, N, ranks, shapes, labels, kept, out, &desc);
        CHECK_NEAR(tn_plan_cost_of(plan).largest, 162, 0);
        tn_plan_destroy(plan);
    }
    CLOSE_CTX(ctx);
}

/* A closed ring of 40 tensors, 4 x 4 grids and more than 64 labels: seeded, repeatable, and equal to products by hand. */
TEST(many)
{
    enum { RING = 40, D = 3 };
    tn_ctx       *ctx = ctx_of(TN_F64);
    tn_tensor    *t[RING];
    int           label[RING][3];
    const int    *labels[RING];
    const int64_t shape[3] = {D, D, 2}, *shapes[RING];
    int           ranks[RING];
    tn_plan_desc  desc = ZERO;
    tn_plan      *plan[2];
    tn_plan_cost  c[2];
    REQUIRE(ctx != NULL);
    for (int k = 0; k < RING; k++) {
        label[k][0] = 1000 * k;
        label[k][1] = 1000 * ((k + 1) % RING);
        label[k][2] = 1000 * k + 1;                                 /* private: summed */
        labels[k] = label[k];
        shapes[k] = shape;
        ranks[k] = 3;
        t[k] = tn_uniform(ctx, 3, shape, 0.1, 1);
    }
    desc.seed = 9;
    for (int k = 0; k < 2; k++) {
        plan[k] = tn_plan_create_labels(ctx, RING, ranks, shapes, labels, 0, NULL, &desc);
        REQUIRE(plan[k] != NULL);
        c[k] = tn_plan_cost_of(plan[k]);
    }
    CHECK_NEAR(c[0].flops, c[1].flops, 0);
    CHECK_NEAR(c[0].flops, RING * D * D * 2 + (RING - 2) * 2 * D * D * D + 2 * D * D, 0);
    tn_tensor *y = tn_plan_run(plan[0], RING, t);
    tn_tensor *again = tn_plan_run(plan[1], RING, t);
    REQUIRE(y && again);
    CHECK(tn_item(y) == tn_item(again));
    tn_tensor *m = tn_sum_axis(ctx, t[0], 2);
    for (int k = 1; k < RING; k++) m = tn_matmul(ctx, m, tn_sum_axis(ctx, t[k], 2));
    REQUIRE(m != NULL);
    double want = tn_item(tn_slice(tn_slice(m, 0, 0, 1), 1, 0, 1)) + tn_item(tn_slice(tn_slice(m, 0, 1, 2), 1, 1, 2))
                  + tn_item(tn_slice(tn_slice(m, 0, 2, 3), 1, 2, 3));
    double got = tn_item(y);
    CHECK_NEAR(got / want, 1, 1e-12);
    CLOSE_CTX(ctx);                                            /* frees the plans as well */
}

/* Two tensors of eight axes, linked by eight of four: intermediate results have sixteen, in an order that no kernel of
   eight axes reaches at once. */
TEST(legs)
{
    tn_ctx    *ctx = ctx_of(TN_F64);
    tn_tensor *t[2];
    int64_t    shape[8];
    double     a[256], b[256], want = 0;
    const int  one[8] = {0, 1, 2, 3, 4, 5, 6, 7}, two[8] = {8, 9, 10, 11, 12, 13, 14, 15};
    const int  links[8][4] = {{0, 8, 1, 15}, {2, 9, 3, 14}, {4, 10, 5, 13}, {6, 11, 7, 12},
                              {15, 3, 8, 7}, {13, 1, 9, 5}, {0, 11, 2, 14}, {6, 10, 4, 12}};
    const int *labels[10] = {one, two, links[0], links[1], links[2], links[3], links[4], links[5], links[6], links[7]};
    tn_tensor *all[10];
    REQUIRE(ctx != NULL);
    for (int64_t i = 0; i < 8; i++) shape[i] = 2;
    for (int64_t i = 0; i < 2; i++) t[i] = tn_uniform(ctx, 8, shape, -1, 1);
    all[0] = t[0];
    all[1] = t[1];
    for (int64_t i = 0; i < 8; i++) all[2 + i] = tn_uniform(ctx, 4, shape, 0.5, 1);
    CHECK_STATUS(tn_read(t[0], TN_F64, a, 256), TN_OK);
    CHECK_STATUS(tn_read(t[1], TN_F64, b, 256), TN_OK);
    tn_tensor *y = tn_einsum_labels(ctx, 10, all, labels, 0, NULL);
    REQUIRE(y != NULL);
    {
        double link[8][16];
        for (int64_t i = 0; i < 8; i++) CHECK_STATUS(tn_read(all[2 + i], TN_F64, link[i], 16), TN_OK);
        for (int64_t x = 0; x < 65536; x++) {
            double v = a[x >> 8] * b[x & 255];
            for (int64_t i = 0; i < 8; i++) {
                int at = 0;
                for (int k = 0; k < 4; k++) at = 2 * at + (int)(x >> (15 - links[i][k]) & 1);
                v *= link[i][at];
            }
            want += v;
        }
    }
    CHECK_NEAR(tn_item(y), want, 1e-11 * fabs(want));
    CLOSE_CTX(ctx);
}

/* ---- the same bits for any number of threads; BF16 -------------------------------------------------------------- */

TEST(threads)
{
    static const int64_t a[4] = {5, 40, 3, 33}, b[4] = {5, 33, 3, 50}, c[2] = {50, 40};
    float first[15], got[15];
    for (int threads = 1; threads < 5; threads += 3) {
        tn_ctx    *ctx = ctx_threads(TN_F32, threads, pool_backwards);
        tn_tensor *t[3];
        REQUIRE(ctx != NULL);
        t[0] = tn_normal(ctx, 4, a, 0, 1);
        t[1] = tn_normal(ctx, 4, b, 0, 1);
        t[2] = tn_normal(ctx, 2, c, 0, 1);
        tn_tensor *y = tn_einsum(ctx, "bihk, bkhj, ji -> hb", 3, t);
        REQUIRE(y != NULL);
        CHECK_STATUS(tn_read(y, TN_F32, threads == 1 ? first : got, 15), TN_OK);
        if (threads > 1) CHECK(memcmp(first, got, sizeof first) == 0);
        tn_ctx_destroy(ctx);
    }
}

TEST(bf16)
{
    tn_desc       d = ZERO;
    tn_ctx       *ctx;
    tn_tensor    *t[3];
    const int64_t shape[2] = {8, 8};
    double        v[64], worst = 0;
    d.activations = TN_BF16;
    REQUIRE(tn_ctx_create(&d, &ctx, NULL) == TN_OK);
    t[0] = tn_full(ctx, 2, shape, 0.5);
    t[1] = tn_cast(ctx, tn_full(ctx, 2, shape, 3), TN_BF16);
    t[2] = tn_full(ctx, 2, shape, 0.25);
    tn_tensor *y = tn_einsum(ctx, "ab,bc,cd->da", 3, t);
    REQUIRE(y != NULL);
    CHECK(y->dtype == TN_BF16);
    CHECK_STATUS(tn_read(y, TN_F64, v, 64), TN_OK);
    for (int i = 0; i < 64; i++) test_raise(&worst, fabs(v[i] - 24));
    WORST("BF16", worst, 0);
    y = tn_einsum(ctx, "ab,bc,cd->", 3, t);
    CHECK(y && y->dtype == TN_F32 && tn_item(y) == 24 * 64);
    tn_ctx_destroy(ctx);
}

/* ---- what is refused -------------------------------------------------------------------------------------------- */

static void refused(tn_ctx *ctx, const char *expr, const char *shapes, tn_status status, const char *message)
{
    tn_tensor *t[MOST];
    int        n = 0;
    for (; *shapes; shapes += *shapes == ';') {
        int64_t shape[TN_MAX_RANK];
        int     rank = shape_of(&shapes, shape);
        t[n++] = tn_tensor_nd(ctx, TN_REAL, rank, shape);
    }
    if (!CHECK(tn_einsum(ctx, expr, n, t) == NULL)) printf("     %s\n", expr ? expr : "NULL");
    CHECK_ERROR(ctx, status, message);
}

TEST(refusals)
{
    tn_ctx    *ctx = ctx_of(TN_F64);
    tn_tensor *t[2] = {NULL, NULL};
    const int  label[2] = {3, -1}, good[2] = {3, 4}, out[1] = {5}, twice[2] = {3, 3};
    REQUIRE(ctx != NULL);
    refused(ctx, "ij,jk->ik", "2x3;4x5", TN_ERR_SHAPE,
            "einsum: character 4, \"jk->ik\": j has extent 3 in operand 0 but 4 in operand 1");
    refused(ctx, "ii->i", "2x3", TN_ERR_SHAPE,
            "einsum: character 2, \"i->i\": i has extent 2 in operand 0 but 3 in operand 0");
    refused(ctx, "ij,jk->ik", "2x3;2x5", TN_ERR_SHAPE, "expected equal extents, or 1");
    refused(ctx, "ij->iz", "2x3", TN_ERR_SHAPE,
            "einsum: character 6, \"z\": z of the result, expected a label of an operand");
    refused(ctx, "ij->ii", "2x3", TN_ERR_SHAPE, "einsum: character 6, \"i\": i is twice in the result, expected once");
    refused(ctx, "i1->i", "2x3", TN_ERR_SHAPE, "einsum: character 2, \"1->i\": expected a letter");
    refused(ctx, "1bcdefghijkl->i", "2x3", TN_ERR_SHAPE, "einsum: character 1, \"1bcdefghijkl..\": expected a letter");
    refused(ctx, "i$,jk", "2x3;3x3", TN_ERR_SHAPE, "character 2, \"$,jk\"");
    refused(ctx, "ij", "2x3;3x3", TN_ERR_SHAPE, "the expression has 1 operand, expected 2");
    refused(ctx, "ij,jk,kl", "2x3;3x3", TN_ERR_SHAPE, "character 6, \",kl\": a term for operand 2, expected 2 operands");
    refused(ctx, "ijk,jk", "2x3;3x3", TN_ERR_SHAPE, "character 1, \"ijk,jk\": 3 labels for operand 0 of rank 2");
    refused(ctx, "i,jk", "2x3;3x3", TN_ERR_SHAPE, "1 label for operand 0 of rank 2");
    refused(ctx, "...ijk->...", "2x3", TN_ERR_SHAPE, "3 labels for operand 0 of rank 2");
    refused(ctx, "..ij->ij", "2x3", TN_ERR_SHAPE, "character 1, \"..ij->ij\": expected three dots");
    refused(ctx, "...i...->i", "2x3", TN_ERR_SHAPE, "character 5, \"...->i\": a second \"...\"");
    refused(ctx, "...i->i", "2x3", TN_ERR_SHAPE, "the axes of \"...\" are missing in the result");
    refused(ctx, "ij->...ij", "2x3", TN_ERR_SHAPE, "\"...\" in the result, expected one in an operand as well");
    refused(ctx, "ij->ij->ij", "2x3", TN_ERR_SHAPE, "character 7, \"->ij\": expected the end of the expression");
    refused(ctx, "ij-", "2x3", TN_ERR_SHAPE, "character 3, \"-\": expected a letter");
    refused(ctx, "ij->ij,", "2x3", TN_ERR_SHAPE, "character 7, \",\": expected the end");
    refused(ctx, "", "2x3", TN_ERR_SHAPE, "0 labels for operand 0 of rank 2");
    refused(ctx, "abcdefghi->", "2x3", TN_ERR_SHAPE, "character 9, \"i->\": more than 8 labels");
    refused(ctx, "abcdef,ghijkl", "1x1x1x1x1x1;1x1x1x1x1x1", TN_ERR_SHAPE, "the result has more than 8 axes");
    refused(ctx, "...a,...b", "5x3x4;5x4x6", TN_ERR_SHAPE, "... has extent 3 in operand 0 but 4 in operand 1");
    refused(ctx, "i", "", TN_ERR_ARG, "the number of operands is 0, expected 1 to 4096");
    refused(ctx, NULL, "2", TN_ERR_ARG, "einsum: the expression, or the array of labels, is NULL");
    REFUSED(ctx, tn_einsum(ctx, "i,i", 2, t), TN_ERR_ARG, "einsum: operand 0 is NULL");
    REFUSED(ctx, tn_einsum(ctx, "i", 1, NULL), TN_ERR_ARG, "the array of operands is NULL");
    t[0] = tn_tensor_2d(ctx, TN_REAL, 2, 3);
    const int *bad[1] = {label};
    CHECK(tn_einsum_labels(ctx, 1, t, bad, 0, NULL) == NULL);
    CHECK_ERROR(ctx, TN_ERR_ARG, "einsum_labels: label 1 of operand 0 is -1, expected at least 0");
    bad[0] = good;
    CHECK(tn_einsum_labels(ctx, 1, t, bad, 1, out) == NULL);
    CHECK_ERROR(ctx, TN_ERR_SHAPE, "einsum_labels: label 5 of the result, expected a label of an operand");
    bad[0] = twice;
    REFUSED(ctx, tn_einsum_labels(ctx, 1, t, bad, 0, NULL), TN_ERR_SHAPE, "label 3 has extent 2 in operand 0 but 3 in operand 0");
    REFUSED(ctx, tn_einsum_labels(ctx, 1, t, bad, 9, out), TN_ERR_SHAPE, "einsum_labels: rank is 9, expected 0 to 8");
    t[0] = tn_tensor_2d(ctx, TN_I32, 2, 3);
    REFUSED(ctx, tn_einsum(ctx, "ij", 1, t), TN_ERR_DTYPE, "einsum: operand 0 is I32, expected F64");
    tn_ctx_destroy(ctx);
}

/* Plans: the table, other shapes than planned, limits that no slicing meets. */
static double seconds(void)
{
    static double now;
    return now += 0.001;
}

TEST(plans)
{
    tn_ctx       *ctx = ctx_of(TN_F64);
    tn_plan_desc  desc = ZERO;
    tn_tensor    *t[2], *many[3];
    const int64_t twos[6] = {2, 2, 2, 2, 2, 2};
    char          text[2048];
    REQUIRE(ctx != NULL);
    desc.clock = seconds;
    tn_plan *plan = plan_of(ctx, "ijj,jk->ik", "i20 j30 k40", &desc);
    REQUIRE(plan != NULL);
    int64_t length = tn_plan_format(plan, text, sizeof text);
    CHECK_INT(length, strlen(text));
    CHECK_INT(tn_plan_format(plan, NULL, 0), length);
    CHECK(strstr(text, "expression         ijj,jk->ik\nnaive cost         48000 flops\n") != NULL);
    CHECK(strstr(text, "   1  ij,jk->ik") != NULL && strstr(text, "  gemm\n") != NULL && strstr(text, " ms ") == NULL);
    t[0] = tn_tensor_3d(ctx, TN_REAL, 20, 30, 30);
    t[1] = tn_tensor_2d(ctx, TN_REAL, 30, 40);
    CHECK(tn_plan_run(plan, 2, t) != NULL && tn_plan_run(plan, 2, t) != NULL);
    CHECK(tn_plan_format(plan, text, sizeof text) > length);
    CHECK(strstr(text, " ms  kernel\n") != NULL && strstr(text, "        1  gemm\n") != NULL);
    t[1] = tn_tensor_2d(ctx, TN_REAL, 40, 30);
    REFUSED(ctx, tn_plan_run(plan, 2, t), TN_ERR_SHAPE, "plan_run: operand 1 is [40,30], expected [30,40] as in the plan");
    REFUSED(ctx, tn_plan_run(plan, 1, t), TN_ERR_ARG, "plan_run: the number of operands is 1, expected 2");
    REFUSED(ctx, tn_plan_run(plan, 2, NULL), TN_ERR_ARG, "plan_run: the array of operands is NULL");
    CHECK_INT(tn_plan_format(NULL, text, sizeof text), -1);
    tn_plan_destroy(plan);
    plan = plan_of(ctx, "ij,jka->ik", "i2 j3 k4 a5", NULL);     /* an operand that is summed alone, first */
    REQUIRE(plan != NULL);
    CHECK(tn_plan_format(plan, text, sizeof text) > 0);
    CHECK(strstr(text, "   1  jka->jk         3          60          96  sum\n") != NULL);
    tn_plan_destroy(plan);
    plan = plan_of(ctx, "abcdef,cdefgh,xyz->abghxyz", "a2 b2 c2 d2 e2 f2 g2 h2 x2 y2 z2", &desc);
    REQUIRE(plan != NULL);
    for (int i = 0; i < 3; i++) many[i] = tn_full(ctx, i < 2 ? 6 : 3, twos, 1);
    for (int timed = 0; timed < 2; timed++) {                   /* products that are too long have lines of their own */
        int alone = 0;
        CHECK(tn_plan_format(plan, text, sizeof text) > 0);
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
            if (!CHECK(strlen(line) <= 80)) puts(line);
            alone += strstr(line, "->") != NULL && line[strlen(line) - 1] != 'm' && line[0] == ' ';
        }
        CHECK(alone > 0);
        CHECK(tn_plan_run(plan, 3, many) != NULL);
    }
    tn_plan_destroy(plan);
    tn_plan_destroy(NULL);
    desc.max_bytes = 1;
    CHECK(plan_of(ctx, "ab,bc,cd->ad", "a20 b30 c40 d50", &desc) == NULL);
    CHECK_ERROR(ctx, TN_ERR_MEMORY, "plan_create: intermediate results of 64 bytes, the least that slicing gives");
    desc.max_bytes = 0;
    CHECK(plan_of(ctx, "abcd,aefg,behi,cfhj,dgij->", "a9999 b9999 c9999 d9999 e9999 f9999 g9999 h9999 i9999 j9999", &desc)
          == NULL);
    CHECK_ERROR(ctx, TN_ERR_MEMORY, "plan_create: an intermediate result of ");
    desc.samples = -1;
    REFUSED(ctx, plan_of(ctx, "ab->ba", "a20 b30", &desc), TN_ERR_ARG, "plan_create: samples is -1, expected at least 0");
    desc.samples = 0;
    desc.minimize = (tn_plan_objective)3;
    REFUSED(ctx, plan_of(ctx, "ab->ba", "a20 b30", &desc), TN_ERR_ARG, "plan_create: minimize is 3, not a valid tn_plan_objective");
    tn_ctx_destroy(ctx);
}

/* Slices at the ends of labels are smaller than the others and have calls of their own, which do not add up. */
TEST(slices)
{
    tn_ctx       *ctx = ctx_of(TN_F64);
    const int64_t shape[2] = {9, 9};
    tn_plan_desc  desc = ZERO;
    tn_tensor    *t[8];
    REQUIRE(ctx != NULL);
    for (int i = 0; i < 8; i++) t[i] = tn_uniform(ctx, 2, shape, 0, 1);
    desc.max_bytes = 400;
    tn_plan *plan = plan_of(ctx, "ab,bc,cd,da,ac,bd,ad,cb->abcd", "a9 b9 c9 d9", &desc);
    REQUIRE(plan != NULL);
    CHECK(tn_plan_cost_of(plan).slices > 100 && tn_plan_cost_of(plan).bytes <= 400);
    tn_tensor *y = tn_einsum(ctx, "ab,bc,cd,da,ac,bd,ad,cb->abcd", 8, t);
    double     want = tn_item(tn_sum(ctx, y));
    size_t     before = tn_ctx_memory(ctx).live;
    y = tn_plan_run(plan, 8, t);
    CHECK_INT(tn_ctx_memory(ctx).live, before);
    CHECK_NEAR(tn_item(tn_sum(ctx, y)) / want, 1, 1e-13);
    CLOSE_CTX(ctx);
}

/* ---- results whose labels alternate between the operands are written in place ----------------------------------- */

/* The sum over all labels, by its definition, of operands with these values. */
static double *by_definition(const char *expr, const int64_t of[128], const double *const *v, int64_t *count)
{
    const char *arrow = strchr(expr, '>');
    char        label[32];
    int64_t     stride[4][128] = {{0}}, at[32] = {0}, all = 1;
    int         labels = 0, operands = 0;
    for (const char *e = arrow + 1; *e; e++) label[labels++] = *e;
    for (const char *e = expr; *e != '-'; e++)
        if (*e != ',' && !memchr(label, *e, (size_t)labels)) label[labels++] = *e;
    *count = 1;
    for (const char *e = arrow + strlen(arrow) - 1; e > arrow; e--) { stride[3][*e & 127] = *count; *count *= of[*e & 127]; }
    for (const char *e = arrow - 2; e >= expr; operands++) {
        int64_t step = 1;
        for (; e >= expr && *e != ','; e--) { stride[operands][*e & 127] = step; step *= of[*e & 127]; }
        e--;
    }
    for (int i = 0; i < labels; i++) all *= of[label[i] & 127];
    double *y = (double *)calloc((size_t)*count + 1, sizeof *y);
    for (int64_t x = 0; y && x < all; x++) {
        int64_t place[4] = {0};
        double  product = 1;
        for (int k = 0; k < 4; k++) for (int i = 0; i < labels; i++) place[k] += at[i] * stride[k][label[i] & 127];
        for (int k = 0; k < operands; k++) product *= v[operands - 1 - k][place[k]];
        y[place[3]] += product;
        for (int i = labels - 1; i >= 0 && ++at[i] == of[label[i] & 127]; i--) at[i] = 0;
    }
    return y;
}

static void in_place(tn_dtype dtype, int threads, double bound)
{
    static const struct { const char *expr, *extents; size_t bytes; } list[] = {
        {"kac,kbd->abcd",         "k4 a5 b6 c7 d40",                    0},
        {"cka,dbk->abcd",         "k4 a5 b6 c7 d40",                    0},        /* copies of both operands */
        {"kacg,kbdg->abgcd",      "k3 a5 b2 c9 d33 g4",                 0},
        {"klac,bdlk->abcd",       "k4 l3 a16 b17 c5 d32",               0},        /* a depth of two labels */
        {"jikl,lkmn->mijn",       "i16 j16 k2 l3 m2 n16",               0},        /* which is in another order, too */
        {"lkmn,jikl->mijn",       "i16 j16 k2 l3 m2 n16",               0},
        {"hik,hjl,hom->oijklm",   "h3 i4 j6 k7 l5 m9 o8",               0},
        {"kaceg,kbdfh->abcdefgh", "k3 a2 b2 c2 d2 e3 f3 g12 h24",       0},        /* eight axes */
        {"kac,kbd->abcd",         "k0 a5 b6 c7 d40",                    0},
        {"bqhd,bkhd->bhqk",       "b2 q5 h3 d4 k40",                    0},        /* two axes of a batch */
        {"oh,hi,hj->oij",         "o3 h4 i40 j33",                      0},        /* rows of several products */
        {"kl,lac,kbd->abcd",      "k40 l3 a8 b9 c8 d33",                3000}      /* slices */
    };
    tn_ctx *ctx = ctx_threads(dtype, threads, pool_backwards);
    double  worst = 0;
    REQUIRE(ctx != NULL);
    for (size_t c = 0; c < sizeof list / sizeof *list; c++) {
        int64_t      of[128] = {0}, shape[TN_MAX_RANK], count = 0;
        double      *v[4];
        tn_tensor   *t[4];
        tn_plan_desc desc = ZERO;
        int          n = 0, rank = 0;
        for (const char *e = list[c].extents; *e; e++) if (*e >= 'a') of[*e & 127] = strtoll(e + 1, NULL, 10);
        for (const char *e = list[c].expr; ; e++) {
            if (*e >= 'a') { shape[rank++] = of[*e & 127]; continue; }
            t[n] = tn_uniform(ctx, rank, shape, -1, 1);
            v[n] = (double *)calloc((size_t)tn_tensor_count(t[n]) + 1, sizeof **v);
            CHECK_STATUS(tn_read(t[n], TN_F64, v[n], tn_tensor_count(t[n])), TN_OK);
            n++;
            rank = 0;
            if (*e == '-') break;
        }
        double *y = by_definition(list[c].expr, of, (const double *const *)v, &count);
        double *ours = doubles(count);
        desc.max_bytes = list[c].bytes;
        tn_plan *plan = plan_of(ctx, list[c].expr, list[c].extents, &desc);
        REQUIRE(plan != NULL && y && ours);
        CHECK((tn_plan_cost_of(plan).slices > 1) == (list[c].bytes > 0));
        CHECK(tn_plan_cost_of(plan).bytes < (dtype == TN_F64 ? 8 : 4) * (size_t)count);       /* no second result */
        for (int recorded = 0; recorded < 2; recorded++) {
            if (recorded) {
                CHECK_STATUS(tn_watch(t[0]), TN_OK);
                tn_record(ctx);
            }
            tn_tensor *result = tn_plan_run(plan, n, t);
            REQUIRE(result != NULL);
            if (recorded) CHECK_STATUS(tn_backward(ctx, tn_sum(ctx, result)), TN_OK);
            if (recorded && count > 0) {                        /* linear in each operand: t . dt = the sum */
                const int64_t most = tn_tensor_count(t[0]);
                double       *g = doubles(most), sum = 0;
                REQUIRE(g != NULL && t[0]->grad != NULL);
                CHECK_STATUS(tn_read(t[0]->grad, TN_F64, g, most), TN_OK);
                for (int64_t i = 0; i < most; i++) sum += g[i] * v[0][i];
                for (int64_t i = 0; i < count; i++) sum -= y[i];
                CHECK_NEAR(sum, 0, bound * (double)count);
            }
            CHECK_STATUS(tn_read(result, TN_F64, ours, count), TN_OK);
            if (!CHECK(test_max_error(ours, y, (int)count) <= bound))
                printf("     %s, recorded: %d\n", list[c].expr, recorded);
            test_raise(&worst, test_max_error(ours, y, (int)count));
        }
        tn_plan_destroy(plan);
        for (int k = 0; k < n; k++) free(v[k]);
        free(y);
        tn_ctx_reset(ctx);
    }
    CLOSE_CTX(ctx);
    WORST(dtype == TN_F64 ? "results in place F64" : "results in place F32", worst, bound);
}

/* Rows that are two axes with a third between them become those of several products, if the last of them has 32 elements; with fewer
   the operand is copied. */
TEST(rows_of_several_axes)
{
    static const struct { const char *expr, *extents; } list[] = {
        {"akb,kn->abn",    "a3 k4 b40 n5"},          {"akb,kn->abn",   "a3 k4 b7 n5"},
        {"nk,akb->nab",    "a3 k4 b33 n6"},          {"nk,akb->anb",   "a3 k4 b33 n6"},
        {"ackb,kn->cabn",  "a2 c3 k4 b35 n5"},       {"akb,nk->nab",   "a3 k2 b40 n4"},
        {"akb,kn->abn",    "a2 k2 b300 n520"},       {"zakb,zkn->zabn", "z3 a2 k4 b34 n5"}
    };
    tn_ctx *ctx = ctx_of(TN_F64);
    double  worst = 0;
    REQUIRE(ctx != NULL);
    for (size_t c = 0; c < sizeof list / sizeof *list; c++) {
        int64_t    of[128] = {0}, shape[TN_MAX_RANK], count = 0;
        double    *v[2];
        tn_tensor *t[2];
        int        n = 0, rank = 0;
        for (const char *e = list[c].extents; *e; e++) if (*e >= 'a') of[*e & 127] = strtoll(e + 1, NULL, 10);
        for (const char *e = list[c].expr; n < 2; e++) {
            if (*e >= 'a') { shape[rank++] = of[*e & 127]; continue; }
            t[n] = tn_uniform(ctx, rank, shape, -1, 1);
            v[n] = (double *)calloc((size_t)tn_tensor_count(t[n]), sizeof **v);
            CHECK_STATUS(tn_read(t[n], TN_F64, v[n], tn_tensor_count(t[n])), TN_OK);
            n++;
            rank = 0;
        }
        double    *y = by_definition(list[c].expr, of, (const double *const *)v, &count);
        double    *ours = doubles(count);
        tn_tensor *result = tn_einsum(ctx, list[c].expr, 2, t);
        REQUIRE(result != NULL && y && ours);
        CHECK_STATUS(tn_read(result, TN_F64, ours, count), TN_OK);
        test_raise(&worst, test_max_error(ours, y, (int)count));
        free(v[0]); free(v[1]); free(y);
        tn_ctx_reset(ctx);
    }
    CLOSE_CTX(ctx);
    WORST("rows of several axes", worst, 1e-13);
}

TEST(results_in_place)
{
    in_place(TN_F64, 1, 1e-13);
    in_place(TN_F32, 3, 1e-4);
}

/* Batches of dot products of any number and length, whose rows may be apart, against sums in double; the same bits for one thread
   and three. */
TEST(dot_products)
{
    static const int64_t counts[] = {0, 1, 3, 4, 7, 1001}, depths[] = {0, 1, 5, 64, 500, 801, 2000};
    static double x[2][1001 * 2001];
    static float  got[2][1001];
    for (int round = 0; round < 42; round++) {
        const int64_t apart = (round + round / 6) % 2, n = counts[round % 6], depth = depths[round / 6];
        const int64_t shape[2] = {n, depth + apart};
        for (int threads = 0; threads < 2; threads++) {
            tn_desc    d = ZERO;
            tn_ctx    *ctx;
            tn_tensor *t[2];
            d.threads = threads ? 3 : 1;
            d.seed = 7;
            REQUIRE(tn_ctx_create(&d, &ctx, NULL) == TN_OK);
            for (int i = 0; i < 2; i++) {
                t[i] = tn_slice(tn_normal(ctx, 2, shape, 0, 1), 1, apart, depth + apart);
                REQUIRE(tn_read(t[i], TN_F64, x[i], n * depth) == TN_OK);
            }
            REQUIRE(tn_read(tn_einsum(ctx, "ij,ij->i", 2, t), TN_F32, got[threads], n) == TN_OK);
            CLOSE_CTX(ctx);
        }
        CHECK(memcmp(got[0], got[1], sizeof *got[0] * (size_t)n) == 0);
        for (int64_t i = 0; i < n; i++) {
            double sum = 0, size = 0;
            for (int64_t j = i * depth; j < (i + 1) * depth; j++) {
                sum += x[0][j] * x[1][j];
                size += fabs(x[0][j] * x[1][j]);
            }
            CHECK(fabs(got[0][i] - sum) <= 1e-6 * size);
        }
    }
}

/* A product without sums before another one: the first is all that is stored, for its operands need no other order. */
TEST(products_without_sums)
{
    static const int64_t shapes[3][3] = {{8, 8, 0}, {4, 64, 0}, {8, 64, 32}};
    static const int     ranks[3] = {2, 2, 3};
    const int64_t       *given[3] = {shapes[0], shapes[1], shapes[2]};
    tn_desc              d = ZERO;
    tn_ctx              *ctx;
    REQUIRE(tn_ctx_create(&d, &ctx, NULL) == TN_OK);
    tn_plan *p = tn_plan_create(ctx, "ab,cd,adw->abcdw", 3, ranks, given, NULL);
    REQUIRE(p);
    CHECK(tn_plan_cost_of(p).bytes == 8 * 8 * 4 * 64 * sizeof(float));
    CLOSE_CTX(ctx);
}

/* Batches of several axes keep desc.gemm_precision: each product has the bits of tn_matmul's. */
TEST(precision)
{
    const int64_t q[4] = {2, 128, 2, 128}, k[4] = {2, 136, 2, 128};
    static float  ours[4 * 128 * 136], want[4 * 128 * 136];
    tn_desc    d = ZERO;
    tn_ctx    *ctx;
    tn_tensor *t[2], *by_head[2];
    d.gemm_precision = TN_GEMM_BF16;
    d.threads = 1;
    REQUIRE(tn_ctx_create(&d, &ctx, NULL) == TN_OK);
    t[0] = tn_normal(ctx, 4, q, 0, 1);
    t[1] = tn_normal(ctx, 4, k, 0, 1);
    tn_tensor *scores = tn_einsum(ctx, "bqhd,bkhd->bhqk", 2, t);
    for (int i = 0; i < 2; i++) by_head[i] = tn_copy(ctx, tn_transpose(t[i], 1, 2));
    CHECK_STATUS(tn_read(scores, TN_F32, ours, 4 * 128 * 136), TN_OK);
    CHECK_STATUS(tn_read(tn_matmul(ctx, by_head[0], tn_transpose(by_head[1], 2, 3)), TN_F32, want, 4 * 128 * 136), TN_OK);
    CHECK(memcmp(ours, want, sizeof ours) == 0);
    CLOSE_CTX(ctx);
}

/* A backend that counts the bytes of its allocations. */
static size_t allocated;

static void *counting_alloc(void *state, size_t bytes)
{
    allocated += bytes;
    return tn_cpu_backend()->alloc(state, bytes);
}

/* A run never takes more than max_bytes from the backend: not for copies of operands that are not contiguous, and not for
   smaller slices at the ends of labels. The result, and what the arena rounds up, are less than 8 KiB here. */
TEST(limits)
{
    static const char *const expr[] = {"abc,bcd,dea->e", "abc,dbc,dae->e", "abc,cbd,dae->", "abc,cba->"};
    tn_backend backend = *tn_cpu_backend();
    uint64_t   seed = 5;
    backend.alloc = counting_alloc;
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++) {
            const int64_t  shape[3] = {13, 13, 15};                 /* of which two of the last axis are unused */
            const int      n = (int)strlen(expr[i]) / 4;
            const int64_t *shapes[4];
            int            ranks[4];
            tn_tensor     *t[4];
            tn_desc        d = ZERO;
            tn_ctx        *ctx;
            tn_plan_desc   desc = ZERO;
            double         want[13], got[13];
            d.dtype = TN_F64;
            d.threads = 1;
            d.backend = &backend;
            d.arena_bytes = 64;
            if (!CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK)) return;
            for (int j = 0; j < n; j++) {
                static double numbers[13 * 13 * 15];
                tn_tensor    *all = tn_tensor_create(ctx, TN_F64, 3, shape);
                for (int e = 0; e < 13 * 13 * 15; e++) numbers[e] = test_random_real(&seed);
                t[j] = all && tn_write(all, TN_F64, numbers, 13 * 13 * 15) == TN_OK ? tn_slice(all, 2, 0, 13) : NULL;
                REQUIRE(t[j] != NULL);
                shapes[j] = t[j]->shape;
                ranks[j] = 3;
            }
            desc.max_bytes = k == 0 ? 8192 : k == 1 ? 12000 : 30000;
            tn_plan *plan = tn_plan_create(ctx, expr[i], n, ranks, shapes, &desc);
            REQUIRE(plan != NULL);
            allocated = 0;
            tn_tensor *y = tn_plan_run(plan, n, t);
            if (!CHECK(y != NULL && allocated <= desc.max_bytes + 8192)) printf("     %s: %zu\n", expr[i], allocated);
            CHECK_CTX(ctx);
            REQUIRE(y != NULL && tn_read(y, TN_F64, got, tn_tensor_count(y)) == TN_OK);
            y = tn_einsum(ctx, expr[i], n, t);
            REQUIRE(y != NULL && tn_read(y, TN_F64, want, tn_tensor_count(y)) == TN_OK);
            for (int64_t j = 0; j < tn_tensor_count(y); j++) CHECK_NEAR(got[j], want[j], 1e-9);
            tn_ctx_destroy(ctx);
        }
}

TEST_MAIN(file, networks, gradients, gradient_of_a_square, optima, exact, least_size_of_a_chain, many, legs, threads, bf16, refusals,
          plans, slices, limits, rows_of_several_axes, results_in_place, dot_products,
          products_without_sums, precision)
