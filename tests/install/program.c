/* program.c: of a project that found the library by pkg-config or CMake. It prints the version that it was compiled with. */
#include <stdio.h>
#ifndef COMPILED_ELSEWHERE
#define TENSORNET_IMPLEMENTATION
#endif
#include <tensornet.h>

int main(void)
{
    tn_desc desc = {0};
    tn_ctx *ctx;
    char why[256];
#ifdef WITH_CUDA
    desc.backend = tn_cuda_backend();
#endif
    if (tn_ctx_create(&desc, &ctx, why) != TN_OK) return 1;
    puts(tn_version());
    tn_ctx_destroy(ctx);
    return 0;
}
