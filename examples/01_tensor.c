/* 01_tensor.c - make tensors, look at them through views, compute with them, print them

   cc -O2 -I. examples/01_tensor.c -o 01_tensor -lm && ./01_tensor

   A context holds everything: the memory, the random numbers, the first error. A call that fails returns NULL, calls that
   are given NULL return NULL, and the context keeps the first message. So one check at the end is enough. */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"

static void show(const char *name, const tn_tensor *t)
{
    char text[256];
    if (tn_tensor_format(t, text, sizeof text) >= 0) printf("%s =\n%s\n\n", name, text);
}

int main(void)
{
    const float six[] = {1, 2, 3, 4, 5, 6}, three[] = {10, 20, 30}, hundred = 100;
    char        why[TN_WHY];
    tn_ctx     *ctx;
    if (tn_ctx_create(NULL, &ctx, why) != TN_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }

    /* Numbers go in by tn_write and come out by tn_read, tn_item or tn_tensor_format. They may lie on another device. */
    tn_tensor *a = tn_tensor_2d(ctx, TN_REAL, 2, 3), *row = tn_tensor_1d(ctx, TN_REAL, 3);
    tn_write(a, TN_F32, six, 6);
    tn_write(row, TN_F32, three, 3);
    show("a", a);

    /* Operations give new tensors. Shapes that differ are broadcast: here the row is added to both rows of a. */
    show("a + row", tn_add(ctx, a, row));
    show("the sum of each row of a", tn_sum_axis(ctx, a, 1));
    show("a times its transpose", tn_matmul(ctx, a, tn_transpose(a, 0, 1)));

    /* A view is another way to look at the same numbers. This one takes every second column; writing to it writes to a. */
    tn_tensor *view = tn_slice_step(a, 1, 0, 3, 2);
    show("columns 0 and 2 of a", view);
    tn_write(tn_slice(tn_slice(view, 0, 1, 2), 1, 1, 2), TN_F32, &hundred, 1);
    show("a, after 100 was written to the last element of the view", a);
    double sum = tn_item(tn_sum(ctx, a));

    if (tn_ctx_status(ctx) != TN_OK) {
        fprintf(stderr, "%s\n", tn_ctx_error(ctx));
        return 1;
    }

    /* A mistake: the shapes of a product that do not fit. Nothing stops, and the message names both shapes. */
    tn_tensor *wrong = tn_add(ctx, tn_matmul(ctx, a, a), row);
    printf("a times a, plus row: %s\n%s\n\n", wrong ? "a tensor" : "NULL", tn_ctx_error(ctx));

    printf("sum: %g\nnumbers: %s\n", sum, tn_dtype_name(tn_ctx_dtype(ctx)));
    printf("view_is_contiguous: %s\n", tn_tensor_is_contiguous(view) ? "yes" : "no");
    printf("status: %s\n", tn_status_name(tn_ctx_status(ctx)));
    tn_ctx_destroy(ctx);                                    /* frees everything */
    return 0;
}
