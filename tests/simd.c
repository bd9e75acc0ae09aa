/* simd.c: prints the SIMD level that a context runs at, for TN_SIMD in the environment. tests/Makefile asks it which levels this
   processor has: the library itself takes the next lower one. */
#include "tensornet.h"
#include <stdio.h>

int main(void)
{
    tn_ctx *ctx;
    if (tn_ctx_create(NULL, &ctx, NULL) != TN_OK) return 1;
    puts(tn_ctx_simd_name(ctx));
    tn_ctx_destroy(ctx);
    return 0;
}
