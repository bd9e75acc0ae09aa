/* TN_NO_STDIO: the library does without stdio.h. Whoever has no file system still has tensors. */
#define TN_NO_STDIO
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#ifdef BUFSIZ
#error "tensornet.h includes stdio.h under TN_NO_STDIO"
#endif
#include "test.h"

TEST(no_stdio)
{
    tn_ctx *ctx = NULL;
    CHECK_STATUS(tn_ctx_create(&ctx, NULL, NULL), TN_OK);
    tn_ctx_destroy(ctx);
}

TEST_MAIN(no_stdio)
