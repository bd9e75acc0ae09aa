/* All that can be left out is left out, and what remains reads weights from memory and predicts. */
#include "smallest.h"
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#include "test.h"

/* What is left out is not declared: its names are free. */
enum { tn_record, tn_backward, tn_recompute, tn_optim_step, tn_graph_begin, tn_checkpoint_read, tn_eigh, tn_hosvd, tn_cp_create,
       tn_unfold, tn_chain, tn_rope, tn_attend, tn_attention_init, tn_mps_init, tn_tt_svd, tn_comm_sum,
       tn_tokenizer_read, tn_shard_open, tn_transformer_init, tn_circuit_create, tn_image_create };

enum { IN = 3, HIDDEN = 5, OUT = 2, ROWS = 4 };

static tn_params *make_layer(tn_ctx *ctx, tn_mlp *layer)
{
    tn_params  *params = tn_params_create(ctx);
    tn_mlp_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.in = IN;
    desc.hidden = HIDDEN;
    desc.out = OUT;
    desc.bias = desc.out_bias = true;
    CHECK_STATUS(tn_mlp_init(params, "layer", &desc, layer), TN_OK);
    return params;
}

/* y = P ((W x + b) * (V x + c)) + p, from the numbers of the parameters */
static double by_hand(tn_params *params, const float *x, int out)
{
    float w[2 * HIDDEN * IN], b[2 * HIDDEN], p[OUT * HIDDEN], pb[OUT];
    tn_read(tn_params_at(params, 0)->value, TN_F32, w, 2 * HIDDEN * IN);
    tn_read(tn_params_find(params, "layer.b")->value, TN_F32, b, 2 * HIDDEN);
    tn_read(tn_params_find(params, "layer.p")->value, TN_F32, p, OUT * HIDDEN);
    tn_read(tn_params_find(params, "layer.pb")->value, TN_F32, pb, OUT);
    double y = pb[out];
    for (int h = 0; h < HIDDEN; h++) {
        double left = b[h], right = b[HIDDEN + h];
        for (int i = 0; i < IN; i++) left += (double)w[h * IN + i] * x[i], right += (double)w[(HIDDEN + h) * IN + i] * x[i];
        y += p[out * HIDDEN + h] * left * right;
    }
    return y;
}

TEST(predicts)
{
    static char file[1 << 14];
    static const float biases[2 * HIDDEN] = {1, -1, 2, 0.5f, 0, 0.25f, -2, 1, 3, -0.5f};
    float       x[ROWS * IN], y[ROWS * OUT];
    double      worst = 0;
    size_t      bytes = 0;
    tn_desc     desc;
    tn_ctx     *ctx;
    tn_mlp      first, second;
    memset(&desc, 0, sizeof desc);
    desc.seed = 5;
    REQUIRE(CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
    CHECK_STR(tn_ctx_simd_name(ctx), "plain");
    tn_params *params = make_layer(ctx, &first);
    CHECK_STATUS(tn_write(tn_params_find(params, "layer.b")->value, TN_F32, biases, 2 * HIDDEN), TN_OK);
    CHECK_STATUS(tn_params_write(params, tn_sink_memory(file, sizeof file, &bytes), NULL, 0), TN_OK);
    tn_params_destroy(params);
    desc.seed = 6;                                          /* other numbers, until those of the file are there */
    tn_ctx_destroy(ctx);
    REQUIRE(CHECK_STATUS(tn_ctx_create(&desc, &ctx, NULL), TN_OK));
    params = make_layer(ctx, &second);
    CHECK_STATUS(tn_params_read(params, tn_source_memory(file, bytes), TN_MATCH_ALL), TN_OK);
    for (int i = 0; i < ROWS * IN; i++) x[i] = 0.25f * (float)(i % 7) - 0.5f;
    tn_tensor *input = tn_tensor_2d(ctx, TN_REAL, ROWS, IN);
    CHECK_STATUS(tn_write(input, TN_F32, x, ROWS * IN), TN_OK);
    CHECK_STATUS(tn_read(tn_mlp_forward(ctx, &second, input), TN_F32, y, ROWS * OUT), TN_OK);
    CHECK_CTX(ctx);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < OUT; i++)
            test_raise(&worst, fabs(y[r * OUT + i] - by_hand(params, x + r * IN, i)));
    CHECK(fabs(y[0]) > 1e-3);
    WORST("prediction", worst, 1e-5);
    tn_ctx_destroy(ctx);
}

TEST(what_is_left_out_is_an_error)
{
    tn_desc desc;
    tn_comm comm;
    tn_ctx *ctx;
    char    why[256];
    memset(&desc, 0, sizeof desc);
    desc.dtype = TN_F64;
    CHECK_STATUS(tn_ctx_create(&desc, &ctx, why), TN_ERR_DTYPE);
    CHECK(strstr(why, "TN_NO_F64") != NULL);
    memset(&desc, 0, sizeof desc);
    memset(&comm, 0, sizeof comm);
    desc.comm = &comm;
    comm.name = "one";
    CHECK_STATUS(tn_ctx_create(&desc, &ctx, why), TN_ERR_ARG);
    CHECK(strstr(why, "TN_NO_COMM") != NULL);
    CHECK(tn_cpu_backend()->fn[TN_KERNEL_ADAMW] == NULL && tn_reference_backend()->fn[TN_KERNEL_ADAMW] == NULL);
    CHECK(tn_cpu_backend()->fn[TN_KERNEL_ROPE] == NULL && tn_reference_backend()->fn[TN_KERNEL_ATTENTION_BACKWARD] == NULL);
    CHECK(tn_cpu_backend()->fn[TN_KERNEL_GEMM] != NULL);
    CHECK_INT(TN_KERNEL_TICK + 1, TN_KERNEL_COUNT);
}

TEST_MAIN(predicts, what_is_left_out_is_an_error)
