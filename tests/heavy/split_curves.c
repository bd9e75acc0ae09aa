/* split_curves.c: a small transformer is trained with products of one, two and three bfloat16 parts, beside F32. The tile
   instructions of AMX are made of C (tests/tiles.h), so the numbers are those of the unit on any processor with AVX-512. No suite
   runs it; docs/measurements.md has what it printed.

       make && gcc -O2 -pthread -Isrc -Itests tests/heavy/split_curves.c build/lib/libtensornet.a -o build/split_curves -lm &&
       build/split_curves docs/math.md 100 */

#include "tiles.h"                      /* before the kernels, which use them */
#include "tensornet.h"
#include "core/inner.h"
#include "cpu/inner.h"
#include "kernels/f32_avx512.c"

#include <stdio.h>
#include <stdlib.h>

#ifndef HAVE_UNITS
int main(void) { puts("no AVX-512 in this compiler"); return 0; }
#else
enum { WIDTH = 128, CONTEXT = 64, BATCH = 4, SHOWN = 20, HELD = 8192 };

static uint8_t text[1 << 18];
static int64_t length;

/* BATCH windows of the text: bytes, and the bytes after each. held: from that window of the last HELD bytes on; below 0: at random */
static void fill(uint64_t *state, int64_t held, int32_t *in, int32_t *out)
{
    for (int b = 0; b < BATCH; b++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        int64_t at = held < 0 ? (int64_t)((*state >> 33) % (uint64_t)(length - HELD - CONTEXT - 1)) : length - HELD
                     + (held + b) * CONTEXT;
        for (int t = 0; t < CONTEXT; t++) {
            in[b * CONTEXT + t] = text[at + t];
            out[b * CONTEXT + t] = text[at + t + 1];
        }
    }
}

/* The mean loss of every SHOWN steps, then that of the held-out bytes. parts 0: F32 */
static void train(const char *name, int parts, int steps, uint64_t seed)
{
    const int64_t  shape[2] = {BATCH, CONTEXT};
    tn_desc        desc = { .seed = seed, .threads = 1 };
    tn_ctx        *ctx = NULL;
    tn_transformer model;
    int32_t        in[BATCH * CONTEXT], out[BATCH * CONTEXT];
    uint64_t       state = 7;                           /* the same text for all */
    double         sum = 0, loss;
    int64_t        w;
    if (tn_ctx_create(&desc, &ctx, NULL) != TN_OK) exit(1);
    ((tni_cpu *)ctx->state)->gemm_parts = parts;
    ((tni_cpu *)ctx->state)->gemm_products = parts ? tni_bf16_tiles : NULL;
    tn_params *params = tn_params_create(ctx);
    tn_transformer_init(params, "", &(tn_transformer_desc){ .vocab = 256, .layers = 2, .dim = WIDTH, .heads = 2,
                                                            .context = CONTEXT, .hidden = 2 * WIDTH }, &model);
    tn_optim  *optim = tn_optim_create(params, &(tn_optim_desc){ .lr = 3e-3, .clip_norm = 1 });
    tn_tensor *x = tn_tensor_create(ctx, TN_I32, 2, shape), *y = tn_tensor_create(ctx, TN_I32, 2, shape);
    printf("%-10s", name);
    for (int step = 1; step <= steps; step++) {
        fill(&state, -1, in, out);
        tn_ctx_reset(ctx);
        tn_write(x, TN_I32, in, BATCH * CONTEXT);
        tn_write(y, TN_I32, out, BATCH * CONTEXT);
        tn_record(ctx);
        tn_tensor *l = tn_transformer_loss(ctx, &model, x, y);
        tn_backward(ctx, l);
        tn_optim_step(optim);
        if (tn_read(l, TN_F64, &loss, 1) != TN_OK) { puts(tn_ctx_error(ctx)); exit(1); }
        sum += loss;
        if (step % SHOWN == 0) { printf(" %8.5f", sum / SHOWN); sum = 0; fflush(stdout); }
    }
    for (w = 0; w + BATCH < HELD / CONTEXT; w += BATCH) {
        fill(&state, w, in, out);
        tn_ctx_reset(ctx);
        tn_write(x, TN_I32, in, BATCH * CONTEXT);
        tn_write(y, TN_I32, out, BATCH * CONTEXT);
        if (tn_read(tn_transformer_loss(ctx, &model, x, y), TN_F64, &loss, 1) != TN_OK) exit(1);
        sum += loss;
    }
    printf("   held out %8.5f\n", sum * BATCH / (double)w);
    tn_optim_destroy(optim);
    tn_ctx_destroy(ctx);
}

int main(int argc, char **argv)
{
    const int steps = argc > 2 ? atoi(argv[2]) : 100;
    FILE     *f = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!f) { puts("split_curves FILE [STEPS]"); return 2; }
    length = (int64_t)fread(text, 1, sizeof text, f);
    fclose(f);
    if (length < 4 * HELD) { puts("the file is too short"); return 2; }
    tiles_in_c = true;
    train("F32", 0, steps, 1);
    train("seed 2", 0, steps, 2);
    train("seed 3", 0, steps, 3);
    train("BF16", 1, steps, 1);
    train("BF16X3", 2, steps, 1);
    train("BF16X6", 3, steps, 1);
    return 0;
}
#endif
