/* 15_dyes.c - a block of measurements taken apart: which dyes are in five glasses, and how much of each

   cc -O2 -I. examples/15_dyes.c -o 15_dyes -lm && ./15_dyes

   A lamp of 20 colours lights up five glasses of mixed dyes, and for each colour the light that comes back is measured in 30
   others: a block of 5 x 20 x 30 numbers. Each dye adds to it the product of its concentration, of how well it takes up the
   lamp's colour, and of how much it sends out in another. So the block is a sum of one term for each dye, and such a sum of
   few terms is unique: concentrations and spectra, which were not measured, can be read from it. Harshman 1970 */
#include <math.h>
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { GLASSES = 5, LAMP = 20, SEEN = 30, DYES = 3 };

static const double amount[GLASSES][DYES] = {{1, 1, 1}, {0, 2, 1}, {2, 0, 0.5}, {1, 3, 0}, {0.5, 0.5, 3}};

/* Spectra of the dyes, one in each column: bells around a first colour and a second one that is `apart` further, .. */
static tn_tensor *spectra(tn_ctx *ctx, int colours, double first, double apart, double width)
{
    double bell[SEEN][DYES];
    for (int i = 0; i < colours; i++)
        for (int r = 0; r < DYES; r++) bell[i][r] = exp(-pow((i - first - r * apart) / width, 2));
    return tn_tensor_from(ctx, 2, (int64_t[]){colours, DYES}, TN_F64, bell);
}

static double apart(tn_ctx *ctx, tn_tensor *a, tn_tensor *b) { return sqrt(tn_item(tn_mse(ctx, a, b))); }

int main(void)
{
    char    why[TN_WHY], text[1000];
    tn_ctx *ctx;
    if (tn_ctx_create(&(tn_desc){.dtype = TN_F64, .seed = 1}, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_tensor *c = tn_tensor_from(ctx, 2, (int64_t[]){GLASSES, DYES}, TN_F64, amount);
    tn_tensor *lamp = spectra(ctx, LAMP, 5, 3, 4), *seen = spectra(ctx, SEEN, 10, 5, 6);
    tn_tensor *clean = tn_einsum(ctx, "gd,ld,sd->gls", 3, (tn_tensor *[]){c, lamp, seen});
    tn_tensor *block = tn_add(ctx, clean, tn_normal(ctx, 3, clean ? clean->shape : NULL, 0, 0.01));

    /* Unfolded, the block is a matrix with one row for each glass, and the spectra become one Khatri-Rao product. */
    tn_tensor *rows = tn_matmul(ctx, c, tn_transpose(tn_khatri_rao(ctx, lamp, seen), 0, 1));
    double     unfolding = apart(ctx, tn_unfold(ctx, clean, 0), rows);

    /* Every axis can be multiplied by a matrix of its own. Here neighbouring colours of the lamp are added, and those that
       are seen are differences: the same as one Kronecker product on the rows of the unfolded block. */
    double add[LAMP / 2][LAMP] = {{0}}, differ[SEEN - 1][SEEN] = {{0}};
    for (int i = 0; i < LAMP / 2; i++) add[i][2 * i] = add[i][2 * i + 1] = 1;
    for (int i = 0; i < SEEN - 1; i++) differ[i][i] = -1, differ[i][i + 1] = 1;
    tn_tensor *a = tn_tensor_from(ctx, 2, (int64_t[]){LAMP / 2, LAMP}, TN_F64, add);
    tn_tensor *d = tn_tensor_from(ctx, 2, (int64_t[]){SEEN - 1, SEEN}, TN_F64, differ);
    tn_tensor *axes = tn_mode_product(ctx, tn_mode_product(ctx, block, 1, a), 2, d);
    tn_tensor *once = tn_matmul(ctx, tn_unfold(ctx, block, 0), tn_transpose(tn_kronecker(ctx, a, d), 0, 1));
    double     products = apart(ctx, axes, tn_fold(ctx, once, 0, 3, (int64_t[]){GLASSES, LAMP / 2, SEEN - 1}));

    /* How many dyes are there? The singular values of the three unfoldings say it: three are above the noise. */
    tn_hosvd_result hosvd;
    tn_hosvd(ctx, block, &(tn_hosvd_desc){.eps = 0.02}, &hosvd);
    if (tn_tensor_format(hosvd.values[0], text, sizeof text) >= 0) printf("singular values of the glasses:\n%s\n\n", text);

    /* The terms themselves, dyes in the order of the colours that they send out. A dye's term has no scale of its own: the
       first glass contains one unit of each. */
    tn_cp_als_result als;
    tn_tensor       *order;
    tn_cp_als(ctx, block, &(tn_cp_als_desc){.terms = DYES}, &als);
    double colour[SEEN];
    for (int i = 0; i < SEEN; i++) colour[i] = i;
    tn_tensor *out = als.factor[2], *number = tn_tensor_from(ctx, 1, (int64_t[]){SEEN}, TN_F64, colour);
    tn_tensor *mean = tn_einsum(ctx, "sd,sd,s->d", 3, (tn_tensor *[]){out, out, number});       /* columns have length 1 */
    tn_sort(ctx, mean, 0, TN_ORDER_SMALLEST, &order);
    tn_tensor *found = tn_gather(ctx, als.factor[0], 1, order);
    found = tn_div(ctx, found, tn_slice(found, 0, 0, 1));
    double read[GLASSES][DYES];
    tn_read(found, TN_F64, read, GLASSES * DYES);
    for (int g = 0; g < GLASSES; g++)
        printf("glass %d contains %.2f %.2f %.2f\n", g, fabs(read[g][0]), fabs(read[g][1]), fabs(read[g][2]));
    double error = apart(ctx, found, c);

    /* The terms are also a function: what every glass sends out in the colours of a filter, when lit by another lamp. */
    tn_cp     *glass = tn_cp_from_als(ctx, &als, TN_CP_INPUT_PLAIN);
    tn_tensor *x[2] = {tn_uniform(ctx, 1, (int64_t[]){LAMP}, 0, 1), tn_uniform(ctx, 1, (int64_t[]){SEEN}, 0, 1)};
    tn_tensor *light = tn_cp_apply_each(ctx, glass, x);
    tn_tensor *expected = tn_einsum(ctx, "gls,l,s->g", 3, (tn_tensor *[]){clean, x[0], x[1]});
    double     relative = apart(ctx, light, expected) / sqrt(tn_item(tn_mean(ctx, tn_mul(ctx, expected, expected))));
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("\nunfolding_is_a_product: %s\n", unfolding < 1e-12 ? "yes" : "no");
    printf("axes_one_by_one_or_at_once: %s\n", products < 1e-12 ? "the same" : "different");
    printf("dyes: %d\n", (int)hosvd.core->shape[0]);
    printf("error_of_three_terms: %.4f\n", als.error);
    printf("error_of_the_amounts: %.4f\n", error);
    printf("error_with_another_lamp: %.4f\n", relative);
    tn_hosvd_destroy(&hosvd);
    tn_cp_als_destroy(&als);
    tn_ctx_destroy(ctx);
    return 0;
}
