/* Another header may have included tensornet.h before, and another may do it after. */
#include "tensornet.h"
#include "tensornet.h"
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#include "tensornet.h"
#include "test.h"

TEST(twice)
{
    tn_ctx *ctx = NULL;
    CHECK_STATUS(tn_ctx_create(&ctx, NULL, NULL), TN_OK);
    tn_ctx_destroy(ctx);
}

TEST_MAIN(twice)
