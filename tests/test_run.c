/* test_run.c: runs of a transformer whose points are read or replaced; edits; attribution. */

#include "model.h"

enum { TOKENS = 5, TEXTS = 2 };

static int64_t tokens_of(const tn_transformer_desc *d) { return d->positions == TN_POSITIONS_LEARNED ? 4 : TOKENS; }

/* Whether both have the same shape and bits. */
static bool same_bits(const tn_tensor *a, const tn_tensor *b)
{
    const int64_t n = a ? tn_tensor_count(a) : 0;
    double       *u = (double *)malloc(sizeof *u * (size_t)(2 * n + 1));
    bool          same = a && b && tn_tensor_count(b) == n && tn_read(a, TN_F64, u, n) == TN_OK
                         && tn_read(b, TN_F64, u + n, n) == TN_OK && memcmp(u, u + n, sizeof *u * (size_t)n) == 0;
    free(u);
    return same;
}

/* The largest |a - b| over the largest |b| */
static double apart(const tn_tensor *a, const tn_tensor *b)
{
    const int64_t n = a ? tn_tensor_count(a) : 0;
    double       *u = (double *)malloc(sizeof *u * (size_t)(2 * n + 1)), worst = 0, size = 1e-300;
    int64_t       i;
    if (!a || !b || tn_tensor_count(b) != n || tn_read(a, TN_F64, u, n) != TN_OK || tn_read(b, TN_F64, u + n, n) != TN_OK)
        worst = HUGE_VAL;
    for (i = 0; i < n && worst < HUGE_VAL; i++) {
        test_raise(&worst, fabs(u[i] - u[n + i]));
        test_raise(&size, fabs(u[n + i]));
    }
    free(u);
    return worst / size;
}

/* ---- the points: their names, shapes and order; forward's bits --------------------------------------------- */

typedef struct listing { const tn_point *points; int64_t count, at; int wrong; } listing;

static tn_tensor *checks_list(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    listing        *l = (listing *)user;
    const tn_point *p = &l->points[l->at];
    (void)ctx;
    if (l->at < l->count && (strcmp(p->name, name) != 0 || p->rank != x->rank
                             || memcmp(p->shape, x->shape, sizeof p->shape[0] * (size_t)x->rank) != 0)) {
        if (!l->wrong++) fprintf(test_out(), "%s [%d], listed: %s [%d]\n", name, x->rank, p->name, p->rank);
    }
    l->at++;
    return x;
}

TEST(every_point_read)
{
    int k, t;
    for (k = 0; k < VARIANTS; k++) {
        for (t = 0; t < 2; t++) {
            const char         *what;
            tn_transformer_desc d = variant(k, &what);
            const tn_dtype      dtype = t ? TN_F32 : TN_F64;
            tn_point            points[80];
            world               w;
            tn_transformer      m;
            listing             l;
            tn_tap              tap;
            tn_tensor          *ids, *whole, *run;
            REQUIRE(model_on(&w, dtype, &d, &m, 3));
            ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
            whole = tn_transformer_forward(w.ctx, &m, ids);
            memset(&l, 0, sizeof l);
            l.points = points;
            l.count = tn_transformer_points(&m, TEXTS, tokens_of(&d), points, 80);
            CHECK(l.count <= 80 && l.count > 10 * m.desc.layers);
            tap.points = "*";
            tap.fn = checks_list;
            tap.user = &l;
            run = tn_transformer_run(w.ctx, &m, ids, &tap, 1);
            if (!CHECK(same_bits(run, whole)) || !CHECK_INT(l.at, l.count) || !CHECK_INT(l.wrong, 0))
                fprintf(test_out(), "in: %s\n", what);
            run = tn_transformer_run(w.ctx, &m, ids, NULL, 0);
            CHECK(same_bits(run, whole));
            CHECK_CTX(w.ctx);
            close_world(&w);
        }
    }
}

/* ---- points that are replaced ------------------------------------------------------------------------------- */

static tn_tensor *copies(tn_ctx *ctx, void *user, const char *name, tn_tensor *x)
{
    (void)name;
    ++*(int *)user;
    return tn_copy(ctx, x);
}

/* Each point in turn is replaced by a copy: the run is computed from the copy, and agrees to rounding. */
TEST(copies_in_place_of_points)
{
    double worst = 0;
    int    k;
    for (k = 0; k < VARIANTS; k++) {
        const char         *what;
        tn_transformer_desc d = variant(k, &what);
        tn_point            points[80];
        world               w;
        tn_transformer      m;
        tn_tensor          *ids, *whole;
        int64_t             n, i;
        REQUIRE(model_on(&w, TN_F64, &d, &m, 3));
        n = tn_transformer_points(&m, TEXTS, tokens_of(&d), points, 80);
        for (i = 0; i < n; i++) {
            int    called = 0;
            double off;
            tn_tap tap;
            tap.points = points[i].name;
            tap.fn = copies;
            tap.user = &called;
            ids = ids_of(w.ctx, &m.desc, TEXTS, tokens_of(&d), 5);
            whole = tn_transformer_forward(w.ctx, &m, ids);
            off = apart(tn_transformer_run(w.ctx, &m, ids, &tap, 1), whole);
            test_raise(&worst, off);
            if (!CHECK_INT(called, 1) || !(off < 1e-12)) fprintf(test_out(), "in: %s, %s: %g\n", what, tap.points, off);
            tn_ctx_reset(w.ctx);
        }
        close_world(&w);
    }
    WORST("logits computed from a copy of a point", worst, 1e-12);
}
TEST_MAIN(every_point_read, copies_in_place_of_points)
