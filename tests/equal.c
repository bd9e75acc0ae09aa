/* equal.c: what a short training run leaves behind, as one line of bits for each way to run it. tests/equal.sh compares what it
   prints when it is linked with the one header and with the units of src/: an MLP and attention in float and double, in BF16, on
   each SIMD level and on the reference backend, by one thread and by three; then eigenpairs, and a contraction. */
#include "tensornet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a of the bits */
static uint64_t hash_of(uint64_t h, const void *p, size_t bytes)
{
    const unsigned char *byte = (const unsigned char *)p;
    for (size_t i = 0; i < bytes; i++) h = (h ^ byte[i]) * UINT64_C(1099511628211);
    return h;
}

static uint64_t hash_tensor(uint64_t h, const tn_tensor *t)
{
    const int64_t n = tn_tensor_count(t);
    double       *x = (double *)malloc((size_t)(n + 1) * sizeof *x);
    if (!x || tn_read(t, TN_F64, x, n) != TN_OK) { puts("FAIL equal: a tensor cannot be read"); exit(1); }
    h = hash_of(h, x, (size_t)n * sizeof *x);
    free(x);
    return h;
}

enum { TEXTS = 8, TOKENS = 24, WIDTH = 32, HEADS = 8, CLASSES = 10, STEPS = 5 };

typedef struct model { tn_mlp mlp; tn_attention attn; tn_norm norm; tn_linear head; } model;

static tn_tensor *forward(tn_ctx *ctx, const model *m, tn_tensor *x)
{
    tn_tensor *y = tn_add(ctx, x, tn_attention_forward(ctx, &m->attn, tn_norm_forward(ctx, &m->norm, x), NULL));
    y = tn_add(ctx, y, tn_mlp_forward(ctx, &m->mlp, tn_norm_forward(ctx, &m->norm, y)));
    return tn_reshape_2d(tn_linear_forward(ctx, &m->head, y), TEXTS * TOKENS, CLASSES);
}

static void run(const tn_desc *desc, const char *name)
{
    tn_ctx *ctx;
    char    why[TN_WHY];
    if (tn_ctx_create(desc, &ctx, why) != TN_OK) { printf("FAIL equal: %s\n", why); exit(1); }
    tn_params        *params = tn_params_create(ctx);
    tn_mlp_desc       mlp = {.in = WIDTH, .hidden = 3 * WIDTH, .out = WIDTH, .bias = true};
    tn_attention_desc attn = {.dim = WIDTH, .heads = HEADS, .d_qk = 16, .d_v = 16};
    tn_norm_desc      norm = {.dim = WIDTH};
    tn_linear_desc    head = {.in = WIDTH, .out = CLASSES, .bias = true};
    model             m;
    tn_mlp_init(params, "mlp", &mlp, &m.mlp);
    tn_attention_init(params, "attn", &attn, &m.attn);
    tn_norm_init(params, "norm", &norm, &m.norm);
    tn_linear_init(params, "head", &head, &m.head);
    tn_optim *optim = tn_optim_create(params, NULL);
    uint64_t  h = UINT64_C(14695981039346656037);
    for (int step = 0; step < STEPS; step++) {
        int32_t label[TEXTS * TOKENS];
        tn_ctx_reset(ctx);
        for (int i = 0; i < TEXTS * TOKENS; i++) label[i] = (i * 7 + step) % CLASSES;
        tn_tensor *x = tn_normal(ctx, 3, (const int64_t[]){TEXTS, TOKENS, WIDTH}, 0, 1);
        tn_tensor *y = tn_tensor_1d(ctx, TN_I32, TEXTS * TOKENS);
        tn_write(y, TN_I32, label, TEXTS * TOKENS);
        tn_record(ctx);
        tn_tensor *loss = tn_cross_entropy(ctx, forward(ctx, &m, x), y);
        if (tn_backward(ctx, loss) == TN_OK) tn_optim_step(optim);
        h = hash_tensor(h, loss);
    }
    for (int64_t i = 0; i < tn_params_count(params); i++) h = hash_tensor(h, tn_params_at(params, i)->value);

    tn_cp   *cp = tn_cp_from_mlp(ctx, &m.mlp);
    tn_eigenpairs eigen;
    if (tn_cp_eigen_all(cp, 4, &eigen) == TN_OK) {
        h = hash_tensor(hash_tensor(h, eigen.values), eigen.vectors);
        tn_eigenpairs_destroy(&eigen);
    }
    tn_tensor *s[2] = {tn_normal(ctx, 2, (const int64_t[]){33, 21}, 0, 1), tn_normal(ctx, 2, (const int64_t[]){21, 17}, 0, 1)};
    h = hash_tensor(h, tn_einsum(ctx, "ij,jk->ki", 2, s));
    if (tn_ctx_status(ctx) != TN_OK) { printf("FAIL equal: %s: %s\n", name, tn_ctx_error(ctx)); exit(1); }
    printf("%s on %s %s, %d threads: %08lx%08lx\n", name, tn_ctx_backend_name(ctx), tn_ctx_simd_name(ctx), tn_ctx_threads(ctx),
           (unsigned long)(h >> 32), (unsigned long)(h & 0xffffffffu));
    tn_ctx_destroy(ctx);
}

int main(void)
{
    for (int threads = 1; threads <= 3; threads += 2)
        for (int simd = TN_SIMD_PLAIN; simd <= TN_SIMD_NEON; simd++) {
            tn_desc desc = {.seed = 7, .threads = threads, .simd = (tn_simd)simd};
            run(&desc, "F32");
            desc.dtype = TN_F64;
            run(&desc, "F64");
            desc.dtype = TN_F32;
            desc.activations = TN_BF16;
            desc.gemm_precision = TN_GEMM_BF16;
            run(&desc, "BF16");
        }
    run(&(tn_desc){.seed = 7, .backend = tn_reference_backend()}, "F32");
    run(&(tn_desc){.seed = 7, .backend = tn_reference_backend(), .dtype = TN_F64}, "F64");
    return 0;
}
