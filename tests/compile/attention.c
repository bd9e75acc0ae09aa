/* Attention of a library without fast kernels. */
#define TN_NO_TEXT
#define TN_NO_MODELS
#define TN_NO_OPERATOR
#define TN_NO_IMAGE
#define TN_NO_COMM
#define TN_NO_TRAINING
#define TN_NO_F64
#define TN_SIMD_MAX -1
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#include "test.h"

/* Without fast kernels the backend cpu leaves attention to the reference, which needs a workspace. */
TEST(attends)
{
    const tn_attend_form form[] = {TN_ATTEND_FORM_QUADRATIC, TN_ATTEND_FORM_LINEAR};
    const int64_t shape[] = {1, 4, 3, 2};
    float         x[4 * 3 * 2], y[2][2][4 * 3 * 2];
    for (int i = 0; i < 4 * 3 * 2; i++) x[i] = 0.25f * (float)(i % 7) - 0.5f;
    for (int b = 0; b < 2; b++) {
        tn_desc desc;
        tn_ctx *ctx;
        memset(&desc, 0, sizeof desc);
        desc.backend = b ? tn_reference_backend() : tn_cpu_backend();
        REQUIRE(CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
        tn_tensor *in = tn_tensor_nd(ctx, TN_REAL, 4, shape);
        CHECK_STATUS(tn_write(in, TN_F32, x, 4 * 3 * 2), TN_OK);
        for (int f = 0; f < 2; f++) {
            tn_attend_desc attend;
            memset(&attend, 0, sizeof attend);
            attend.kind = TN_ATTEND_SQUARED;
            attend.form = form[f];
            CHECK_STATUS(tn_read(tn_attend(ctx, in, in, in, &attend), TN_F32, y[b][f], 4 * 3 * 2), TN_OK);
        }
        CHECK_CTX(ctx);
        tn_ctx_destroy(ctx);
    }
    CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
    CHECK(fabs(y[0][0][23]) > 1e-3 && fabs(y[0][0][23] - y[0][1][23]) < 1e-5);
}

TEST_MAIN(attends)
