// program.cpp: program.c in C++17
#include <cstdio>
#define TENSORNET_IMPLEMENTATION
#include <tensornet.h>

int main()
{
    tn_ctx *ctx = nullptr;
    if (tn_ctx_create(&ctx, nullptr, nullptr) != TN_OK) return 1;
    std::puts(tn_version());
    tn_ctx_destroy(ctx);
}
