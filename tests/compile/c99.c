/* The header stands alone, first in a C99 program. */
#include "tensornet.h"
#include "test.h"

TEST(c99)
{
    tn_desc desc = {0};
    tn_ctx *ctx = NULL;
    desc.seed = 1;
    CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK);
    tn_ctx_destroy(ctx);
}

TEST_MAIN(c99)
