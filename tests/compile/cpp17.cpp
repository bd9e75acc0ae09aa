/* A C++17 program calls the library that a C compiler made. */
#include "tensornet.h"
#include "test.h"

TEST(cpp17)
{
    tn_desc desc = {};
    tn_ctx *ctx = nullptr;
    desc.seed = 1;
    CHECK_STATUS(tn_ctx_create(&desc, &ctx, nullptr), TN_OK);
    tn_ctx_destroy(ctx);
}

TEST_MAIN(cpp17)
