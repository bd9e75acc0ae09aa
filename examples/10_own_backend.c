/* 10_own_backend.c - a backend of your own: a table of kernels that counts, replaces one and leaves one out

   cc -O2 -I. examples/10_own_backend.c -o 10_own_backend -lm && ./10_own_backend

   Only kernels read and write the numbers of a tensor, and a backend is a table of kernels with one signature. A backend for
   a new device can start like this one: take an existing backend, and replace one kernel after the other. A kernel that is
   NULL is composed of other kernels, or runs on the host, which is slow but correct. Here every kernel counts its calls and
   passes them on to the cpu backend, with two exceptions: ACT (activation functions) has a loop of our own for ReLU, and GLU
   is left out. At the end both backends must have computed the same numbers. */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

static int64_t calls[TN_KERNEL_COUNT], own_relu;

static tn_status counted(void *state, const tn_call *call)
{
    calls[call->kernel]++;
    return tn_cpu_backend()->fn[call->kernel](state, call);
}

static bool plain(const tn_view *v)                         /* F32, row-major, without gaps? */
{
    int64_t step = 1;
    for (int i = v->rank - 1; i >= 0; step *= v->shape[i--]) if (v->shape[i] != 1 && v->strides[i] != step) return false;
    return v->dtype == TN_F32;
}

static tn_status relu(void *state, const tn_call *call)
{
    const float *x = (const float *)call->in[0].data;
    float       *y = (float *)call->out[0].data;
    int64_t      n = 1;
    if (call->i[0] != TN_ACT_RELU || call->accumulate || !plain(&call->in[0]) || !plain(&call->out[0]))
        return counted(state, call);                        /* all other cases: the kernel of cpu */
    calls[call->kernel]++;
    own_relu++;
    for (int i = 0; i < call->out[0].rank; i++) n *= call->out[0].shape[i];
    for (int64_t i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
    return TN_OK;
}

enum { OUTPUTS = 8 * 4, WEIGHTS = 8 * 6, NUMBERS = OUTPUTS + WEIGHTS };

/* The outputs of a network with both kinds of layers, and after them the gradient of its first weights. */
static bool run(const tn_backend *backend, float numbers[NUMBERS], bool print)
{
    const int64_t shape[] = {8, 6};
    char          why[TN_WHY];
    tn_ctx       *ctx;
    tn_mlp        first, second;
    if (tn_ctx_create(&(tn_desc){ .backend = backend, .backend_required = true, .seed = 1 }, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return false;
    }
    tn_params *params = tn_params_create(ctx);
    tn_mlp_init(params, "relu", &(tn_mlp_desc){ .in = 6, .hidden = 8, .kind = TN_MLP_RELU }, &first);
    tn_mlp_init(params, "bilinear", &(tn_mlp_desc){ .in = 6, .hidden = 8, .out = 4 }, &second);
    tn_record(ctx);
    tn_tensor *out = tn_mlp_forward(ctx, &second, tn_mlp_forward(ctx, &first, tn_normal(ctx, 2, shape, 0, 1)));
    tn_backward(ctx, tn_mean(ctx, tn_mul(ctx, out, out)));
    tn_read(out, TN_F32, numbers, OUTPUTS);
    if (first.w) tn_read(first.w->grad, TN_F32, numbers + OUTPUTS, WEIGHTS);
    for (int k = 0; print && k < TN_KERNEL_COUNT; k++)
        if (calls[k] || tn_ctx_kernel_calls(ctx, (tn_kernel)k))
            printf("   %-20s %s\n", tn_kernel_name((tn_kernel)k), calls[k] ? "by us" : "composed, or by the host");
    bool done = tn_ctx_status(ctx) == TN_OK;
    if (!done) fprintf(stderr, "%s\n", tn_ctx_error(ctx));
    tn_ctx_destroy(ctx);
    return done;
}

int main(void)
{
    float      ours[NUMBERS], theirs[NUMBERS];
    int        different = 0;
    tn_backend own = *tn_cpu_backend();                     /* with its memory, copies, open and close */
    own.name = "counting";
    for (int k = 0; k < TN_KERNEL_COUNT; k++) if (own.fn[k]) own.fn[k] = counted;
    own.fn[TN_KERNEL_ACT] = relu;
    own.fn[TN_KERNEL_GLU] = NULL;
    printf("kernels of a forward and a backward pass:\n");
    if (!run(&own, ours, true) || !run(tn_cpu_backend(), theirs, false)) return 1;
    for (int i = 0; i < NUMBERS; i++) different += !(ours[i] - theirs[i] < 1e-5f && theirs[i] - ours[i] < 1e-5f);
    printf("\nown_relu: %d\nglu_by_us: %d\n", (int)own_relu, (int)calls[TN_KERNEL_GLU]);
    printf("numbers_that_differ: %d of %d\n", different, NUMBERS);
    return different != 0;
}
