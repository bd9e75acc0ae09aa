/* 08_attention.c - attention heads with weights written by hand, and what each position looks at

   cc -O2 -I. examples/08_attention.c -o 08_attention -lm && ./08_attention

   The output of a head is a weighted sum of the values of other positions: o_t = sum_s P[t,s] v_s. The pattern P[t,s] says
   how much position t attends to position s. It is computed from queries and keys: the softmax of q_t.k_s, or, in bilinear
   attention, the product of two such scores, which makes the layer a tensor. The first two heads attend to earlier positions
   with the same letter. Their values v_s are unit vectors, so the output is the pattern itself. */
#include <stdio.h>
#include <string.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

enum { LETTERS = 4, T = 6, DIM = LETTERS + T };             /* x: one number for each letter, one for each position */

/* Fills a stack of matrices with zeros, except for `factor` at [i,first + i] of each: they select `rows` numbers of a
   vector, from `first` on. */
static void pick(tn_tensor *stack, int64_t rows, int64_t first, float factor)
{
    if (!stack) return;                                     /* the context has the error */
    float   w[4 * LETTERS * DIM] = {0};                     /* enough for the largest of them */
    int64_t columns = stack->shape[stack->rank - 1], count = tn_tensor_count(stack);
    for (int64_t i = 0; i < count / columns; i++) w[i * columns + first + i % rows] = factor;
    tn_write(stack, TN_F32, w, count);
}

static tn_tensor *input(tn_ctx *ctx, const char *text)
{
    float      x[T][DIM] = {{0}};
    tn_tensor *t = tn_tensor_3d(ctx, TN_REAL, 1, T, DIM);
    for (int i = 0; i < T; i++) x[i][text[i] - 'a'] = x[i][LETTERS + i] = 1;
    tn_write(t, TN_F32, x, T * DIM);
    return t;
}

static void show(const char *name, const char *text, const tn_tensor *pattern, float P[T][T])
{
    tn_read(pattern, TN_F32, P, T * T);
    printf("%s\n   looks at:", name);
    for (int i = 0; i < T; i++) printf("     %c%s", text[i], i < T - 1 ? "" : "\n");
    for (int t = 0; t < T; t++) {
        printf("   %8c ", text[t]);
        for (int s = 0; s < T; s++) printf("  %.2f%s", (double)P[t][s], s < T - 1 ? "" : "\n");
    }
}

int main(void)
{
    const tn_attention_kind kind[] = {TN_ATTENTION_SOFTMAX, TN_ATTENTION_BILINEAR};
    float   P[T][T], other[T][T];
    char    why[TN_WHY];
    bool    causal = true, cached = true, pattern = true;
    tn_ctx *ctx;
    if (tn_ctx_create(NULL, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    tn_params *params = tn_params_create(ctx);
    for (int i = 0; i < 2; i++) {
        tn_attention head;
        const char  *name = tn_attention_kind_name(kind[i]);
        tn_attention_init(params, name, &(tn_attention_desc){ .dim = DIM, .heads = 1, .out = T,
            .d_qk = LETTERS, .d_v = T, .kind = kind[i], .no_rope = true }, &head);
        pick(head.qk, LETTERS, 0, i == 0 ? 5 : 2);          /* queries and keys: the letter */
        pick(head.v, T, LETTERS, 1);                        /* values: the position         */
        pick(head.o, T, 0, 1);
        tn_tensor *x = input(ctx, "abacba"), *y = tn_attention_forward(ctx, &head, x, NULL);
        show(name, "abacba", y, P);
        tn_tensor *seen = tn_reshape(tn_attention_pattern(ctx, &head, x), 3, (int64_t[]){1, T, T});    /* whatever v is */
        pattern = pattern && tn_item(tn_mse(ctx, y, seen)) < 1e-12;

        /* Causal: another last letter changes only the last position; all others stay bit-identical. */
        tn_read(tn_attention_forward(ctx, &head, input(ctx, "abacbd"), NULL), TN_F32, other, T * T);
        causal = causal && memcmp(P, other, sizeof(float) * T * (T - 1)) == 0 && P[T - 1][0] != other[T - 1][0];

        /* Decoding computes one position after the other, and keeps the keys and values of all earlier ones in a cache. */
        tn_attention_cache *cache = tn_attention_cache_create(ctx, &head, 1, T);
        tn_tensor *whole = tn_attention_forward(ctx, &head, x, NULL), *decoded = tn_copy(ctx, whole);
        for (int t = 0; t < T; t++) {
            tn_tensor *next = tn_slice(x, 1, t, t + 1);
            tn_assign(tn_slice(decoded, 1, t, t + 1), tn_attention_decode(ctx, &head, next, cache, NULL));
        }
        cached = cached && tn_attention_cache_past(cache) == T && tn_item(tn_mse(ctx, whole, decoded)) < 1e-10;
        printf("   the cache: %d bytes\n\n", (int)tn_attention_cache_bytes(cache));
        tn_attention_cache_reset(cache);                    /* another text, which is read in one go */
        tn_tensor *text = input(ctx, "cabbac"), *at_once = tn_attention_decode(ctx, &head, text, cache, NULL);
        cached = cached && tn_item(tn_mse(ctx, tn_attention_forward(ctx, &head, text, NULL), at_once)) < 1e-10;
        tn_attention_cache_destroy(cache);
    }

    /* Positions: tn_rope rotates queries and keys by angles that grow with the position, so their product depends only on
       the distance. Here each key is rotated by one position more, so it matches the query of the next position: this head
       attends to the position before. */
    const int64_t shape[] = {1, T, 1, 32}, square[] = {1, T, 1, T};
    tn_tensor *ones = tn_full(ctx, 4, shape, 4), *unit = tn_full(ctx, 4, square, 0);
    pick(unit, T, 0, 1);
    tn_tensor *q = tn_rope(ctx, ones, NULL), *k = tn_rope(ctx, ones, &(tn_rope_desc){ .first = 1 });
    show("by position", "abacba", tn_attend(ctx, q, k, unit, NULL), other);
    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }
    printf("\ncausal: %s\ndecoding_gives_the_same: %s\n", causal ? "yes" : "no", cached ? "yes" : "no");
    printf("values_show_the_pattern: %s\n", pattern ? "yes" : "no");
    tn_ctx_destroy(ctx);
    return 0;
}
