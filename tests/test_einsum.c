/* test_einsum.c: contractions of many tensors against sums over all labels at once, the planner against known optima, and what is
   refused. tests/data/einsum/cases.tsv has expressions with NumPy's results. */

#include "pool.h"
#include "test.h"

enum { MOST = 12, LABELS = 26 };

static tn_ctx *ctx_of(tn_dtype dtype, int threads)
{
    tn_desc d;
    tn_ctx *ctx;
    memset(&d, 0, sizeof d);
    d.dtype = dtype;
    d.threads = threads;
    d.parallel_for = threads > 1 ? pool_backwards : NULL;
    return CHECK_STATUS(tn_ctx_create(&d, &ctx, NULL), TN_OK) ? ctx : NULL;
}

/* ---- the cases of the file ---------------------------------------------------------------------------------------------------- */

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
    int64_t n = 1, i;
    for (i = 0; i < rank; i++) n *= shape[i];
    for (i = 0; i < n; i++) v[i] = (double)((i * (7 + 2 * k) + 3 * k) % 11) - 5;
    return tn_tensor_from(ctx, rank, shape, TN_F64, v);
}

/* One line, with equal extents required and then with broadcasting: exactly the values of the file. */
static void file_case(tn_ctx *ctx, const char *line)
{
    tn_tensor    *t[MOST], *y;
    tn_plan_desc  desc;
    tn_plan      *plan;
    char          expr[128];
    const int64_t *shapes[MOST];
    int64_t       shape[TN_MAX_RANK], i, count;
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
    memset(&desc, 0, sizeof desc);
    desc.broadcast = true;
    plan = tn_plan_create(ctx, expr, n, ranks, shapes, &desc);
    y = plan ? tn_plan_run(plan, n, t) : NULL;
    if (!CHECK_CTX(ctx)) printf("     %s\n", expr);
    REQUIRE(y != NULL);
    line++;
    rank = shape_of(&line, shape);
    CHECK_INT(rank, y->rank);
    for (i = 0; i < rank; i++) CHECK_INT(shape[i], y->shape[i]);
    count = tn_tensor_count(y);
    CHECK_STATUS(tn_read(y, TN_F64, got, count), TN_OK);
    for (i = 0, line++; i < count; i++) {
        char *end;
        if (!CHECK(strtod(line, &end) == got[i])) printf("     %s element %d: %g\n", expr, (int)i, got[i]);
        line = end + (*end == ',');
    }
    CHECK(*line == '\n' || *line == '\r' || *line == 0);
    tn_plan_destroy(plan);
    if (strcmp(expr, "ij,ij->j") == 0) {                      /* its operands have different extents */
        CHECK(tn_einsum(ctx, expr, n, t) == NULL);
        CHECK_ERROR(ctx, TN_ERR_SHAPE, "i has extent 10 in operand 0 but 1 in operand 1");
        return;
    }
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
    char   path[TEST_PATH], *text;
    size_t n;
    int    pass, cases = 0;
    REQUIRE(test_data("einsum/cases.tsv", path));
    text = test_read_file(path, &n);
    REQUIRE(text != NULL);
    for (pass = 0; pass < 2; pass++) {
        tn_ctx     *ctx = ctx_of(pass ? TN_F32 : TN_F64, 1);
        const char *line;
        REQUIRE(ctx != NULL);
        for (line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
            file_case(ctx, line);
            tn_ctx_reset(ctx);
            cases++;
        }
        tn_ctx_destroy(ctx);
    }
    CHECK_INT(cases, 2 * 16);
    free(text);
}

/* ---- random networks against the sum over all labels -------------------------------------------------------------------------- */

typedef struct net {
    int        n, labels, rank[MOST], out_rank, label[MOST][TN_MAX_RANK], out[TN_MAX_RANK];
    int64_t    extent[LABELS];
    tn_tensor *t[MOST];
    double    *v[MOST];                 /* their numbers, row-major */
} net;

/* Up to `most` operands, most labels shared by two, some by more or in the result as well; diagonals, private labels, extents of
   one; zero ones if asked for. */
static void net_make(net *a, uint64_t *seed, int most, int labels, bool zeros)
{
    int k, i, l;
    memset(a, 0, sizeof *a);
    a->n = (int)test_random_int(seed, 1, most);
    a->labels = labels;
    for (l = 0; l < labels; l++) a->extent[l] = test_random_int(seed, zeros && l % 5 == 4 ? 0 : 1, l % 3 == 0 ? 4 : 3);
    for (l = 0; l < labels; l++) {
        const int uses = (int)test_random_int(seed, 1, 5);
        for (i = 0; i < (uses < 4 ? 2 : uses == 4 ? 1 : 3); i++) {
            k = (int)test_random_int(seed, 0, a->n - 1);
            if (a->rank[k] < 5) a->label[k][a->rank[k]++] = l;
        }
    }
    for (l = 0; l < labels; l++) {
        bool used = false;
        for (k = 0; k < a->n; k++) for (i = 0; i < a->rank[k]; i++) used = used || a->label[k][i] == l;
        if (used && a->out_rank < 4 && test_random_int(seed, 0, 3) == 0) a->out[a->out_rank++] = l;
    }
    for (i = a->out_rank - 1; i > 0; i--) {
        k = (int)test_random_int(seed, 0, i);
        l = a->out[i]; a->out[i] = a->out[k]; a->out[k] = l;
    }
}

/* Operands of random numbers; every second is a view with transposed axes or negative steps. */
static bool net_tensors(net *a, tn_ctx *ctx, uint64_t *seed, bool watch)
{
    int k, i;
    for (k = 0; k < a->n; k++) {
        int64_t    shape[TN_MAX_RANK], count = 1, j;
        const int  turn = a->rank[k] > 1 && !watch ? (int)test_random_int(seed, 0, 2) : 0;
        tn_tensor *base;
        for (i = 0; i < a->rank[k]; i++) count *= shape[i] = a->extent[a->label[k][i]];
        a->v[k] = (double *)malloc(sizeof(double) * (size_t)(count + 1));
        for (j = 0; j < count; j++) a->v[k][j] = (double)(float)test_random_real(seed);
        if (turn) {
            const int64_t first = shape[0];
            shape[0] = shape[a->rank[k] - 1];
            shape[a->rank[k] - 1] = first;
        }
        base = tn_tensor_nd(ctx, TN_REAL, a->rank[k], shape);
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
    int64_t at[LABELS] = {0}, count = 1, i;
    int     k, l;
    for (i = 0; i < a->out_rank; i++) count *= a->extent[a->out[i]];
    for (i = 0; i < count; i++) y[i] = 0;
    for (l = 0; l < a->labels; l++) {
        bool used = false;
        for (k = 0; k < a->n; k++) for (i = 0; i < a->rank[k]; i++) used = used || a->label[k][i] == l;
        if (used && a->extent[l] == 0) return count;
    }
    for (;;) {
        double  product = 1;
        int64_t to = 0;
        for (k = 0; k < a->n; k++) {
            int64_t from = 0;
            for (i = 0; i < a->rank[k]; i++) from = from * a->extent[a->label[k][i]] + at[a->label[k][i]];
            product *= a->v[k][from];
        }
        for (i = 0; i < a->out_rank; i++) to = to * a->extent[a->out[i]] + at[a->out[i]];
        y[to] += product;
        for (l = a->labels - 1; l >= 0; l--) {
            bool used = false;
            for (k = 0; k < a->n && !used; k++) for (i = 0; i < a->rank[k]; i++) used = used || a->label[k][i] == l;
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
        for (int i = 0; i < (k < a->n ? a->rank[k] : a->out_rank); i++) printf("%c", 'a' + (k < a->n ? a->label[k][i] : a->out[i]));
    }
    for (int l = 0; l < a->labels; l++) printf(" %c %d", 'a' + l, (int)a->extent[l]);
    printf("\n");
}

/* Runs it as a plan; slices > 0: with half, a quarter .. of the bytes that the whole takes. */
static tn_tensor *net_plan(const net *a, tn_ctx *ctx, size_t max_bytes, tn_plan_cost *cost)
{
    const int     *labels[MOST];
    const int64_t *shapes[MOST];
    tn_plan_desc   desc;
    tn_plan       *plan;
    tn_tensor     *y;
    for (int k = 0; k < a->n; k++) {
        labels[k] = a->label[k];
        shapes[k] = a->t[k]->shape;
    }
    memset(&desc, 0, sizeof desc);
    desc.max_bytes = max_bytes;
    plan = tn_plan_create_labels(ctx, a->n, a->rank, shapes, labels, a->out_rank, a->out, &desc);
    if (!plan) return NULL;
    *cost = tn_plan_cost_of(plan);
    y = tn_plan_run(plan, a->n, (tn_tensor *const *)a->t);
    tn_plan_destroy(plan);
    return y;
}

static void random_nets(tn_dtype dtype, int rounds, double bound)
{
    tn_ctx  *ctx = ctx_of(dtype, 1);
    uint64_t seed = 11;
    double   worst = 0, sliced = 0;
    int      round, slices = 0;
    REQUIRE(ctx != NULL);
    for (round = 0; round < rounds; round++) {
        static double want[4096], got[4096];
        net           a;
        tn_tensor    *y;
        tn_plan_cost  cost, part;
        const int    *labels[MOST];
        int64_t       count;
        net_make(&a, &seed, MOST, (int)test_random_int(&seed, 1, 9), round % 4 == 0);
        REQUIRE(net_tensors(&a, ctx, &seed, false));
        for (int k = 0; k < a.n; k++) labels[k] = a.label[k];
        count = net_brute(&a, want);
        y = tn_einsum_labels(ctx, a.n, a.t, labels, a.out_rank, a.out);
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
    CHECK(slices > rounds / 40);
    WORST("random networks", worst, bound);
    WORST("random networks, sliced", sliced, bound);
    tn_ctx_destroy(ctx);
}

TEST(networks)
{
    random_nets(TN_F64, test_small() ? 100 : 400, 1e-12);
    random_nets(TN_F32, test_small() ? 100 : 400, 2e-5);
}

TEST_MAIN(file, networks)
