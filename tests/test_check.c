/* test_check.c: what other systems do differently: replacing files */

#include "kit.h"

static void path_of(char path[TEST_PATH], const char *name)
{
    snprintf(path, TEST_PATH, "%s/test_check_%s", test_folder(), name);
}

/* An allocator that looks for a file at each call, and once it is there keeps it open, as a virus scanner or a copying program might. */
typedef struct holder { char path[TEST_PATH + 16]; FILE *file; } holder;

static void *holder_alloc(size_t bytes, void *user)
{
    holder *h = (holder *)user;
    if (!h->file) h->file = fopen(h->path, "rb");
    return malloc(bytes);
}

static void holder_release(void *p, size_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    free(p);
}

static tn_params *one_parameter(tn_ctx *ctx)
{
    static const int64_t shape[] = {3};
    tn_params *params = tn_params_create(ctx);
    tn_init    init = ZERO;
    CHECK(tn_params_add(params, "w", 1, shape, init));
    return params;
}

/* A save replaces what is there, again and again. */
TEST(saves_replace)
{
    char    path[TEST_PATH];
    tn_ctx *ctx;
    path_of(path, "again.safetensors");
    REQUIRE(write_text(path, "old"));
    REQUIRE(tn_ctx_create(NULL, &ctx, NULL) == TN_OK);
    tn_params *params = one_parameter(ctx);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(tn_params_save(params, path), TN_OK);
        CHECK_STATUS(tn_params_load(params, path), TN_OK);
    }
    CLOSE_CTX(ctx);
    CHECK(remove(path) == 0);
}

/* Where a file that is open cannot be renamed the save fails, and the old file is still there. Elsewhere it succeeds. */
TEST(a_failed_replace_keeps_the_old)
{
    char    path[TEST_PATH];
    holder  h;
    tn_desc desc = ZERO;
    tn_ctx *ctx;
    path_of(path, "held.safetensors");
    snprintf(h.path, sizeof h.path, "%s.tn1.tmp", path);
    h.file = NULL;
    remove(h.path);
    REQUIRE(write_text(path, "old"));
    desc.allocator.alloc = holder_alloc;
    desc.allocator.release = holder_release;
    desc.allocator.user = &h;
    REQUIRE(tn_ctx_create(&desc, &ctx, NULL) == TN_OK);
    tn_params *params = one_parameter(ctx);
    if (tn_params_save(params, path) == TN_OK) CHECK_STATUS(tn_params_load(params, path), TN_OK);
    else {
        CHECK_ERROR(ctx, TN_ERR_FILE, "could not be replaced");
        CHECK(file_is(path, "old"));
    }
    CHECK(h.file != NULL);
    if (h.file) fclose(h.file);
    remove(h.path);
    tn_ctx_destroy(ctx);
    CHECK(remove(path) == 0);
}

/* A folder is not replaced. That nothing stays beside it is in test_abuse.c. */
TEST(a_folder_is_not_replaced)
{
    tn_ctx *ctx;
    REQUIRE(tn_ctx_create(NULL, &ctx, NULL) == TN_OK);
    tn_params *params = one_parameter(ctx);
    CHECK_STATUS(tn_params_save(params, "tests"), TN_ERR_FILE);        /* the folder that this file lies in */
    CHECK_ERROR(ctx, TN_ERR_FILE, "could not be replaced");
    tn_ctx_destroy(ctx);
}

TEST_MAIN(saves_replace, a_failed_replace_keeps_the_old, a_folder_is_not_replaced)
