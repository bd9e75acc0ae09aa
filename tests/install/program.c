/* program.c: of a project that found the library by pkg-config or CMake. It prints the version that it was compiled with. */
#include <stdio.h>
#define TENSORNET_IMPLEMENTATION
#include <tensornet.h>

int main(void)
{
    tn_ctx *ctx;
    if (tn_ctx_create(&ctx, NULL, NULL) != TN_OK) return 1;
    puts(tn_version());
    tn_ctx_destroy(ctx);
    return 0;
}
