/* One file of a program holds the implementation, the other one only calls it. Another header may have included tensornet.h
   before, and another may do it after. The smallest library is enough for this; tests/test_debug.c includes all of it again. */
#include "smallest.h"
#include "tensornet.h"
#include "tensornet.h"
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#include "tensornet.h"
#include "test.h"

tn_status other_unit(tn_ctx *ctx);

TEST(two_units)
{
    tn_ctx *ctx = NULL;
    REQUIRE(tn_ctx_create(NULL, &ctx, NULL) == TN_OK);
    CHECK_STATUS(other_unit(ctx), tn_ctx_status(ctx));
    tn_ctx_destroy(ctx);
}

TEST_MAIN(two_units)
