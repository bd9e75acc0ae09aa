/* 13_mps.c - a matrix product state: built, trained as a Born machine, and read

   cc -O2 -I. examples/13_mps.c -o 13_mps -lm && ./13_mps

   The probability of a string of 10 bits is f(x)^2 / sum of f^2, where f is a product of ten matrices, one for each bit. It is
   shown the 144 strings without two ones side by side. What has to be passed along the chain is whether the last bit was a
   one, so that two numbers are enough in each bond, and the entropy of no cut can be above ln 2. */
#include <math.h>
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { BITS = 10, ALL = 1 << BITS, RIGHT = 144, STEPS = 300, DRAWN = 1000 };

/* The chain that we expect: its bond is the last bit, and after a one there is no matrix for another one. */
static tn_tt *exact(tn_ctx *ctx)
{
    tn_tensor *core[BITS];
    for (int k = 0; k < BITS; k++) {
        const double first[4] = {1, 0, 0, 1}, middle[8] = {1, 0, 0, 1, 1, 0, 0, 0}, last[4] = {1, 1, 1, 0};
        if (k == 0) core[k] = tn_tensor_from(ctx, 3, (int64_t[]){1, 2, 2}, TN_F64, first);
        else if (k < BITS - 1) core[k] = tn_tensor_from(ctx, 3, (int64_t[]){2, 2, 2}, TN_F64, middle);
        else core[k] = tn_tensor_from(ctx, 3, (int64_t[]){2, 2, 1}, TN_F64, last);
    }
    return tn_tt_create(ctx, BITS, core);
}

int main(void)
{
    char        why[TN_WHY];
    tn_desc     desc = {.dtype = TN_F64, .seed = 3};
    tn_ctx     *ctx;
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }

    /* Ten sites with bonds of 4 and two features: the unit vectors of a bit. */
    tn_params *params = tn_params_create(ctx);
    tn_mps     mps;
    tn_mps_init(params, "mps", &(tn_mps_desc){.sites = BITS, .bond = 4, .map = TN_LOCAL_IDS, .std = 0.1}, &mps);
    tn_optim  *optim = tn_optim_create(params, &(tn_optim_desc){.lr = 0.02});

    int32_t bits[RIGHT][BITS];
    for (int i = 0, n = 0; i < ALL; i++) {
        if (i & i >> 1) continue;
        for (int k = 0; k < BITS; k++) bits[n][k] = i >> k & 1;
        n++;
    }

    /* The loss is the mean of -ln p, which cannot be below ln 144. */
    double loss = 0;
    for (int step = 0; step < STEPS && tn_ctx_status(ctx) == TN_OK; step++) {
        tn_ctx_reset(ctx);
        tn_tensor *x = tn_tensor_2d(ctx, TN_I32, RIGHT, BITS);
        tn_write(x, TN_I32, bits, RIGHT * BITS);
        tn_record(ctx);
        tn_tensor *mean = tn_scale(ctx, tn_mean(ctx, tn_mps_log_probability(ctx, &mps, x)), -1);
        tn_backward(ctx, mean);
        tn_optim_step(optim);
        loss = tn_item(mean);
        if (step % 60 == 0) printf("step %3d  loss %.4f\n", step, loss);
    }

    /* As a train it can be read: entropies, overlaps, probabilities, samples. Rounding removes what the bonds do not need. */
    tn_tt     *tt = tn_tt_from_mps(ctx, &mps), *less = tn_tt_round(tt, &(tn_tt_desc){.relative = 0.01}), *wanted = exact(ctx);
    tn_tensor *entropies = tn_tt_entropies(tt);
    double     nats[BITS - 1], overlap, sign, norm, other, p[2], surprise = 0;
    static double log_p[DRAWN][BITS];
    int64_t    index[DRAWN][BITS], right = 0;
    tn_read(entropies, TN_F64, nats, BITS - 1);
    printf("entropies:");
    for (int k = 0; k < BITS - 1; k++) printf(" %.3f", nats[k]);
    tn_tt_log_inner(tt, wanted, &overlap, &sign);
    tn_tt_log_norm(tt, &norm);
    tn_tt_log_norm(wanted, &other);
    double partition = tn_item(tn_mps_log_partition(ctx, &mps));         /* ln of the sum of f^2 over all 1024 strings */
    for (int k = 0; k < BITS; k++) index[0][k] = 0;                      /* p(x_3 | 0,0,0) */
    tn_tt_conditional(less, 3, index[0], p);
    tn_tt_sample(less, DRAWN, 0, 1, index[0]);
    tn_tt_log_conditionals(less, DRAWN, index[0], log_p[0]);             /* ln p of each bit, given those before it */
    for (int i = 0; i < DRAWN; i++) {
        int64_t pairs = 0;
        for (int k = 0; k < BITS - 1; k++) pairs += index[i][k] * index[i][k + 1];
        right += pairs == 0;
        for (int k = 0; k < BITS; k++) surprise -= log_p[i][k] / DRAWN;
    }
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("\nloss_above_ln_144: %.4f\n", loss - log(RIGHT));
    printf("ln_2: %.3f\n", log(2));
    printf("cosine_with_the_exact_chain: %.4f\n", exp(overlap - norm - other));
    printf("bond_after_rounding: %lld\n", (long long)less->core[5]->shape[0]);
    printf("discarded_weight: %.1e\n", less->discarded);
    printf("p_of_a_one_after_000: %.4f\n", p[1]);                        /* 13 of the 34 strings of the other seven bits */
    printf("right_of_1000_samples: %lld\n", (long long)right);
    printf("strings_that_samples_choose_from: %.1f\n", exp(surprise));
    printf("partition_is_the_norm_squared: %s\n", fabs(partition - 2 * norm) < 1e-10 ? "yes" : "no");
    tn_ctx_destroy(ctx);
    return 0;
}
