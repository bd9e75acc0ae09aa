/* TN_STATIC keeps every name inside this file: the program is linked with a second copy of the library, and nothing clashes. */
#define TN_STATIC
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#include "test.h"

TEST(is_static)
{
    tn_ctx *ctx = NULL;
    CHECK_STATUS(tn_ctx_create(&ctx, NULL, NULL), TN_OK);
    tn_ctx_destroy(ctx);
}

TEST_MAIN(is_static)
