/* 20_finetune.c - a network that has learned digits learns another task from 60 images, with most of its weights frozen

   cc -O2 -I. examples/20_finetune.c -o 20_finetune -lm && ./20_finetune      (in the folder of tensornet.h)

   First a network with two residual bilinear layers learns the ten digits from 1,500 images. Then only 60 of them are
   labelled anew: is the digit odd? Three copies begin with the same weights: one trains a new head on the frozen body, one
   trains the head first and then everything, and the third one trains a body that has learned nothing. The rest is what a
   training may need: Muon for the inner matrices, dropout, and activations that are computed twice instead of kept. */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { TRAIN = 1500, ALL = 1797, BATCH = 50, STEPS = 400, FEW = 60, TUNE = 100, WIDTH = 48 };

typedef struct network { tn_linear embed, head, odd; tn_mlp mlp[2]; } network;

/* The body. Nothing in it is kept for the backward pass, which calls it again, with the same dropout. */
static tn_tensor *body(tn_ctx *ctx, const void *with, tn_tensor *const in[3])
{
    const network *net = (const network *)with;
    tn_tensor     *x = tn_linear_forward(ctx, &net->embed, in[0]), *y;
    y = tn_mlp_forward(ctx, &net->mlp[0], tn_layernorm(ctx, x, NULL, NULL, 1e-5));
    y = tn_residual_rmsnorm(ctx, x, tn_dropout(ctx, y, 0.1), NULL, 1e-5, &x);      /* x += y, and the norm of the sum */
    return tn_add(ctx, x, tn_dropout(ctx, tn_mlp_forward(ctx, &net->mlp[1], y), 0.1));
}

static tn_tensor *forward(tn_ctx *ctx, const network *net, const tn_linear *head, tn_tensor *x)
{
    return tn_linear_forward(ctx, head, tn_recompute(ctx, body, net, sizeof *net, 1, &x));
}

static void train(tn_ctx *ctx, tn_optim *optim, const network *net, const tn_linear *head, tn_tensor *x, tn_tensor *y,
                  int64_t count, int64_t steps)
{
    for (int64_t step = 0; step < steps && tn_ctx_status(ctx) == TN_OK; step++) {
        int64_t first = step * BATCH % count, last = first + BATCH < count ? first + BATCH : count;
        tn_ctx_reset(ctx);
        tn_record(ctx);
        tn_tensor *logits = forward(ctx, net, head, tn_slice(x, 0, first, last));
        tn_backward(ctx, tn_cross_entropy(ctx, logits, tn_slice(y, 0, first, last)));
        tn_optim_step(optim);
    }
}

static double test(tn_ctx *ctx, const network *net, const tn_linear *head, tn_tensor *x, tn_tensor *y)
{
    return tn_item(tn_accuracy(ctx, forward(ctx, net, head, tn_slice(x, 0, TRAIN, ALL)), tn_slice(y, 0, TRAIN, ALL)));
}

int main(void)
{
    static int32_t digit[ALL];
    char           why[TN_WHY];
    network        net, copy[3];
    double         right[3] = {0};
    tn_ctx        *ctx;
    if (tn_ctx_create(&(tn_desc){ .seed = 1 }, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_tensor *images = tn_idx_load(ctx, "examples/data/digits-images-idx3-ubyte", 1 / 16.0);
    tn_tensor *labels = tn_idx_load(ctx, "examples/data/digits-labels-idx1-ubyte", 0);
    tn_tensor *odd = tn_tensor_create(ctx, TN_I32, 1, (int64_t[]){ALL});
    images = tn_tensor_keep(tn_reshape_2d(images, ALL, 64));
    tn_read(labels, TN_I32, digit, ALL);
    for (int i = 0; i < ALL; i++) digit[i] %= 2;
    tn_write(odd, TN_I32, digit, ALL);

    tn_params *params = tn_params_create(ctx);
    tn_linear_init(params, "embed", &(tn_linear_desc){ .in = 64, .out = WIDTH }, &net.embed);
    for (int l = 0; l < 2; l++)
        tn_mlp_init(params, l ? "mlp1" : "mlp0", &(tn_mlp_desc){ .in = WIDTH, .hidden = WIDTH }, &net.mlp[l]);
    tn_linear_init(params, "head", &(tn_linear_desc){ .in = WIDTH, .out = 10, .bias = true }, &net.head);
    tn_linear_init(params, "odd", &(tn_linear_desc){ .in = WIDTH, .out = 2, .bias = true }, &net.odd);
    tn_params *untrained = tn_params_clone(ctx, params);

    /* Muon updates matrices as a whole, AdamW the first and the last one. */
    tn_schedule schedule = { .kind = TN_SCHEDULE_TRAPEZOID, .warmup = 20, .total = STEPS };
    tn_params_use_adamw(params, "embed");
    tn_params_use_adamw(params, "head");
    tn_optim *optim = tn_optim_create(params, &(tn_optim_desc){ .kind = TN_OPTIM_MUON, .adam_lr = 3e-3, .weight_decay = 0.1,
        .schedule = schedule, .momentum_warmup = 100 });
    double momentum = tn_optim_momentum(optim);
    train(ctx, optim, &net, &net.head, images, labels, TRAIN, STEPS);
    printf("learning rate:");
    for (int64_t step = 0; step <= STEPS; step += 50) printf(" %.2f", tn_schedule_at(&schedule, step));
    printf("\nmomentum: %.2f, later %.2f\n", momentum, tn_optim_momentum(optim));
    double digits = test(ctx, &net, &net.head, images, labels);

    /* Copies of the parameters, and of the structs that point to them. */
    for (int i = 0; i < 3; i++) {
        tn_params *own = tn_params_clone(ctx, i < 2 ? params : untrained);
        copy[i] = net;
        tn_params_rebind(own, params, &copy[i], sizeof copy[i]);
        if (i < 2) tn_params_freeze(own, "");
        tn_params_thaw(own, "odd");
        tn_optim *tune = tn_optim_create(own, &(tn_optim_desc){ .lr = 1e-3 });
        train(ctx, tune, &copy[i], &copy[i].odd, images, odd, FEW, TUNE);
        if (i == 1 && tn_params_thaw(own, "") > 0) train(ctx, tune, &copy[i], &copy[i].odd, images, odd, FEW, TUNE);
        right[i] = test(ctx, &copy[i], &copy[i].odd, images, odd);
    }
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("digits: %.3f\nodd_by_a_new_head: %.3f\n", digits, right[0]);
    printf("odd_by_all: %.3f\nodd_from_nothing: %.3f\n", right[1], right[2]);
    tn_ctx_destroy(ctx);
    return 0;
}
