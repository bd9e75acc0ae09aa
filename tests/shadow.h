/* shadow.h: a backend that rounds the right matrix of a product to BF16, or reads it in BF16 where it is an operand as well
   (>>shadow in tensornet.h), and then compares each number of the two. All else is as on the cpu backend; updates are the
   reference's, which write such operands. */

#ifndef TN_SHADOW_H
#define TN_SHADOW_H

#include "test.h"

enum { SHADOW_LEAST = 2 };

static struct { int64_t given, wrong; } shadow_seen;        /* products with the operand; and such whose numbers are others */

/* x as BF16 holds it: round to nearest, ties to even */
static inline float shadow_round(float x, uint16_t *half)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    *half = (uint16_t)(x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    bits = (uint32_t)*half << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline tn_status shadow_gemm(void *state, const tn_call *call)
{
    const tn_view *b = &call->in[1];
    tn_call        c = *call;
    float         *flat = NULL;
    bool           same = true;
    int64_t        n = b->shape[0] * b->shape[1] * b->shape[2], at = 0;
    (void)state;
    if (b->dtype == TN_F32 && b->shape[1] >= SHADOW_LEAST && b->shape[2] >= SHADOW_LEAST) {
        flat = (float *)malloc(sizeof *flat * (size_t)(n + 1));
        for (int64_t i = 0; i < b->shape[0]; i++)
            for (int64_t j = 0; j < b->shape[1]; j++)
                for (int64_t k = 0; k < b->shape[2]; k++) {
                    const int64_t from = i * b->strides[0] + j * b->strides[1] + k * b->strides[2];
                    uint16_t      half;
                    flat[at++] = shadow_round(((const float *)b->data)[from], &half);
                    if (call->n_in > 3 && call->in[3].data) same = same && ((const uint16_t *)call->in[3].data)[from] == half;
                }
        c.in[1].data = flat;
        c.in[1].strides[2] = 1; c.in[1].strides[1] = b->shape[2]; c.in[1].strides[0] = b->shape[1] * b->shape[2];
    }
    if (call->n_in > 3 && call->in[3].data) {
        same = same && flat && call->in[3].dtype == TN_BF16 && memcmp(call->in[3].strides, b->strides, sizeof b->strides) == 0;
        shadow_seen.given++;
        shadow_seen.wrong += !same;
        c.n_in = 3;
    }
    tn_status s = tn_reference_backend()->fn[TN_KERNEL_GEMM](NULL, &c);
    free(flat);
    return s;
}

static inline tn_status shadow_update(void *state, const tn_call *call)
{
    (void)state;
    return tn_reference_backend()->fn[call->kernel](NULL, call);
}

/* With operands in BF16, or without them. */
static inline const tn_backend *shadow_backend(bool on)
{
    static tn_backend both[2];
    tn_backend       *b = &both[on];
    *b = *tn_cpu_backend();
    b->name = "shadow";
    b->shadow = on ? SHADOW_LEAST : 0;
    b->fn[TN_KERNEL_GEMM] = shadow_gemm;
    b->fn[TN_KERNEL_ADAMW] = b->fn[TN_KERNEL_SGD] = b->fn[TN_KERNEL_MUON_END] = shadow_update;
    return b;
}

#endif
