/* test_circuits.c: circuits of transformers against the model that they are read from, and against plain loops. */

#include "world.h"

static tn_tensor *any_matrix(world *w, int64_t n, int64_t m)
{
    static double v[4096];
    const int64_t shape[2] = {n, m};
    if (n * m > 4096) abort();
    for (int64_t i = 0; i < n * m; i++) v[i] = test_random_real(&w->seed);
    return tn_tensor_from(w->ctx, 2, shape, TN_F64, v);
}

TEST(factors_give_rows)
{
    world      w;
    tn_tensor *left[2], *right[2];
    double     l[2][15], r[2][12], got[8], worst = 0;
    REQUIRE(open_on(&w, TN_F64, 3, 1, NULL));
    for (int s = 0; s < 2; s++) {
        left[s] = any_matrix(&w, 5, 3);
        right[s] = any_matrix(&w, 4, 3);
        tn_read(left[s], TN_F64, l[s], 15);
        tn_read(right[s], TN_F64, r[s], 12);
    }
    for (int sets = 1; sets <= 2; sets++) {
        tn_circuit *c = tn_circuit_create(w.ctx, sets, left, right);
        CHECK_STATUS(tn_read(tn_circuit_rows(w.ctx, c, 2, 2), TN_F64, got, 8), TN_OK);
        for (int i = 0; i < 8; i++) {
            double expected = 1;
            for (int s = 0; s < sets; s++) {
                double dot = 0;
                for (int k = 0; k < 3; k++) dot += l[s][(2 + i / 4) * 3 + k] * r[s][(i % 4) * 3 + k];
                expected *= dot;
            }
            test_raise(&worst, fabs(got[i] - expected));
        }
        tn_circuit_destroy(c);
    }
    CHECK_CTX(w.ctx);
    WORST("rows of a circuit", worst, 1e-14);
    CHECK(tn_circuit_create(w.ctx, 3, left, right) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_ARG, "sets is 3, expected 1 or 2");
    right[1] = any_matrix(&w, 4, 2);
    CHECK(tn_circuit_create(w.ctx, 2, left, right) == NULL);
    CHECK_ERROR(w.ctx, TN_ERR_SHAPE, "left 1 is [5,3] and right 1 is [4,2]");
    close_world(&w);
}

TEST_MAIN(factors_give_rows)
