/* 16_casino.c - products of long chains of matrices: when does the casino use its loaded die?

   cc -O2 -I. examples/16_casino.c -o 16_casino -lm && ./16_casino

   Now and then a casino exchanges its die for one that shows a six half of the time, and later it takes the fair one again.
   Only the rolls are seen. Roll t multiplies the probabilities of the two dice, a row vector, by a matrix M_t[a,b] = p(b
   follows a) p(roll|b), so that a product of 1000 such matrices is the probability of the whole evening: about 1e-760,
   which no double can hold. Scans give all products from the left and from the right, with their scale as a logarithm.
   The example is from Durbin, Eddy, Krogh & Mitchison 1998, the model from Baum & Petrie 1966. */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { ROLLS = 1000, DICE = 2, SIDES = 6, STEPS = 150 };

static const double start[DICE] = {2 / 3.0, 1 / 3.0}, follows[DICE][DICE] = {{0.95, 0.05}, {0.1, 0.9}};
static const double shows[DICE][SIDES] = {{1 / 6.0, 1 / 6.0, 1 / 6.0, 1 / 6.0, 1 / 6.0, 1 / 6.0}, {.1, .1, .1, .1, .1, .5}};

static double uniform(void)                                    /* a random number from 0 to 1 */
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (state >> 8) / 16777216.0;
}

/* ln p of the rolls, whose one-hot rows are phi [1,n,6]: the scale of the last product, and what is left in it. */
static tn_tensor *evening(tn_ctx *ctx, tn_tensor *first, tn_tensor *p, tn_tensor *roll, tn_tensor *phi, tn_tensor **states)
{
    tn_tensor *core = tn_einsum(ctx, "ab,bs->asb", 2, (tn_tensor *[]){p, roll}), *logs;
    tn_tensor *y = tn_scan_states(ctx, first, tn_reshape(core, 4, (int64_t[]){1, DICE, SIDES, DICE}), phi, false, &logs);
    if (states) *states = y;
    tn_tensor *last = tn_log(ctx, tn_sum_axis(ctx, tn_slice(y, 1, ROLLS, ROLLS + 1), 2));
    return tn_sum(ctx, tn_add(ctx, tn_slice(logs, 1, ROLLS, ROLLS + 1), last));
}

int main(void)
{
    static double  one_hot[ROLLS][SIDES], number[ROLLS];
    static int32_t loaded[ROLLS];
    char           why[TN_WHY];
    tn_ctx        *ctx;
    for (int t = 0, die = 0; t < ROLLS; t++) {
        if (t > 0) die = uniform() < follows[die][1];
        double r = uniform();
        int    side = 0;
        while (side < SIDES - 1 && (r -= shows[die][side]) >= 0) side++;
        one_hot[t][side] = 1, number[t] = side + 1, loaded[t] = die;
    }
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64, .seed = 1}, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_tensor *phi = tn_tensor_keep(tn_tensor_from(ctx, 3, (int64_t[]){1, ROLLS, SIDES}, TN_F64, one_hot));
    tn_tensor *first = tn_tensor_keep(tn_tensor_from(ctx, 1, (int64_t[]){DICE}, TN_F64, start));
    tn_tensor *p = tn_tensor_from(ctx, 2, (int64_t[]){DICE, DICE}, TN_F64, follows);
    tn_tensor *roll = tn_tensor_from(ctx, 2, (int64_t[]){DICE, SIDES}, TN_F64, shows);

    /* Which die was it? The products from the left know all rolls so far, those from the right all later ones. */
    tn_tensor *before, *known = evening(ctx, first, p, roll, phi, &before);
    tn_tensor *m = tn_einsum(ctx, "ab,bs,ots->otab", 3, (tn_tensor *[]){p, roll, phi});
    tn_tensor *after = tn_scan_vector(ctx, tn_full(ctx, 1, (int64_t[]){DICE}, 1), m, true, NULL);
    tn_tensor *both = tn_slice(tn_mul(ctx, before, after), 1, 1, ROLLS + 1), *guess = tn_argmax(ctx, both);
    double     right = tn_item(tn_accuracy(ctx, both, tn_tensor_from(ctx, 2, (int64_t[]){1, ROLLS}, TN_I32, loaded)));
    tn_tensor *shown = tn_tensor_from(ctx, 2, (int64_t[]){1, ROLLS}, TN_F64, number), *zero = tn_full(ctx, 0, NULL, 0);
    tn_tensor *times = tn_sum(ctx, tn_where(ctx, guess, tn_full(ctx, 0, NULL, 1), zero));
    double     mean = tn_item(tn_div(ctx, tn_sum(ctx, tn_where(ctx, guess, shown, zero)), times));

    /* The same products without a first vector: one after the other, in blocks side by side, and the last one alone. */
    tn_tensor *all = tn_scan(ctx, m, false, NULL), *last = tn_slice(all, 1, ROLLS - 1, ROLLS);
    double     blocks = tn_item(tn_mse(ctx, all, tn_scan_blocks(ctx, m, 32, false, NULL)));
    double     chain = tn_item(tn_mse(ctx, tn_chain(ctx, m, NULL), tn_reshape(last, 3, (int64_t[]){1, DICE, DICE})));

    /* Is the casino honest? Two models of the evening, equally likely before it. */
    tn_tensor *fair = tn_full(ctx, 2, (int64_t[]){DICE, SIDES}, 1 / 6.0);
    tn_tensor *models = tn_stack(ctx, 2, (tn_tensor *[]){evening(ctx, first, p, fair, phi, NULL), known}, 0);
    double     ln_p = tn_item(known), sides = tn_item(tn_exp(ctx, tn_scale(ctx, known, -1.0 / ROLLS))), cheats[2];
    tn_read(tn_softmax(ctx, models), TN_F64, cheats, 2);

    /* The dice are learned from the rolls alone, by gradients through the product: rows of probabilities are softmaxes. */
    tn_params *params = tn_params_create(ctx);
    tn_tensor *ps = tn_params_add(params, "follows", 2, (int64_t[]){DICE, DICE}, (tn_init){.rule = TN_INIT_ZERO})->value;
    tn_tensor *rolls = tn_params_add(params, "shows", 2, (int64_t[]){DICE, SIDES}, (tn_init){.rule = TN_INIT_ZERO})->value;
    tn_write(ps, TN_F64, (double[]){2, 0, 0, 2}, 4);                    /* a guess: a die stays for a while, one likes sixes */
    tn_write(tn_slice(tn_slice(rolls, 0, 1, 2), 1, 5, 6), TN_F64, (double[]){1}, 1);
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){.lr = 0.05});
    double    learned = 0, six[DICE][SIDES], stays[DICE][DICE];
    for (int step = 0; step < STEPS && tn_ctx_status(ctx) == TN_OK; step++) {
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *loss = evening(ctx, first, tn_softmax(ctx, ps), tn_softmax(ctx, rolls), phi, NULL);
        learned = tn_item(loss);
        tn_backward(ctx, tn_scale(ctx, loss, -1.0 / ROLLS));
        tn_optim_step(optim);
    }
    tn_read(tn_softmax(ctx, ps), TN_F64, stays, DICE * DICE);
    tn_read(tn_softmax(ctx, rolls), TN_F64, six, DICE * SIDES);
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("ln_p_of_the_evening: %.1f\nsides_of_a_fair_die_as_hard_to_guess: %.2f\n", ln_p, sides);
    printf("right_guesses: %.3f\nmean_of_rolls_called_loaded: %.2f\n", right, mean);
    printf("scans_agree: %s\n", blocks < 1e-24 && chain < 1e-24 ? "yes" : "no");
    printf("probability_that_it_cheats: %.9f\n", cheats[1]);
    printf("learned_ln_p: %.1f\nlearned_p_of_a_six: %.2f and %.2f\n", learned, six[0][5], six[1][5]);
    printf("learned_p_that_a_die_stays: %.2f and %.2f\n", stays[0][0], stays[1][1]);
    tn_ctx_destroy(ctx);
    return 0;
}
