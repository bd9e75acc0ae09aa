/* test_authors.c: models in the layouts of other programs, against tools/golden_authors.py, which computes them once more. */

#include "kit.h"

enum { ROOM = 1 << 16 };

static const char *path_of(const char *model, const char *file)
{
    static char path[2][TEST_PATH];
    static int  which;
    char        name[128];
    which = !which;
    snprintf(name, sizeof name, "authors/%s/%s", model, file);
    return CHECK(test_data(name, path[which])) ? path[which] : "";
}

static void slurp(const char *path, char text[ROOM])
{
    FILE *f = fopen(path, "rb");
    REQUIRE(f);
    text[fread(text, 1, ROOM - 1, f)] = 0;
    fclose(f);
}

static const tn_name_map *map_of(const char *model, int64_t *lines)
{
    if (!strncmp(model, "stories", 7)) return tn_name_map_bilinear(lines);
    if (!strncmp(model, "modded", 6)) return tn_name_map_modded(lines);
    return !strncmp(model, "gemma", 5) ? tn_name_map_gemma(lines) : tn_name_map_llama(lines);
}

typedef struct loaded { tn_params *params; tn_transformer net; } loaded;

/* Configs of the first repository do not have the vocabulary, which is put before their keys, as tn import does. */
static tn_status read_config(tn_ctx *ctx, const char *model, const char *more, tn_transformer_desc *desc)
{
    char text[ROOM], whole[ROOM + 256];
    slurp(path_of(model, "config.json"), text);
    snprintf(whole, sizeof whole, "{%s%s", more, text + 1);
    return tn_transformer_config_read(ctx, tn_source_memory(whole, strlen(whole)), desc);
}

static bool load(tn_ctx *ctx, const char *model, loaded *m)
{
    tn_transformer_desc desc = ZERO;
    int64_t             lines;
    const tn_name_map  *map = map_of(model, &lines);
    m->params = tn_params_create(ctx);
    if (!CHECK_STATUS(read_config(ctx, model, !strncmp(model, "stories-", 8) && strcmp(model, "stories-first")
                                              ? "\"vocab_size\":13," : "", &desc), TN_OK)) return false;
    tn_transformer_init(m->params, "", &desc, &m->net);
    tn_transformer_read_mapped(m->params, &m->net, tn_source_path(path_of(model, "model.safetensors")), map, lines);
    return CHECK_CTX(ctx);
}

static const char *const models[] = {
    "stories-bilinear", "stories-gated", "stories-plain", "stories-linear", "stories-first",
    "modded-softmax", "modded-squared", "modded-bilinear", "modded-differential", "qwen3", "gemma"
};
enum { MODELS = sizeof models / sizeof *models };

static void check_logits(const char *model, const loaded *m, double bound)
{
    enum { MOST = 1024 };
    tn_ctx *ctx = m->net.embed.w->ctx;
    char    golden[ROOM];
    double  number[32], want[MOST], got[MOST], worst = 0;
    int32_t ids[32];
    slurp(path_of(model, "golden.json"), golden);
    const int T = golden_numbers(golden, "ids", number, 32), n = golden_numbers(golden, "logits", want, MOST);
    for (int i = 0; i < T; i++) ids[i] = (int32_t)number[i];
    tn_tensor *x = tn_tensor_2d(ctx, TN_I32, 1, T);
    tn_write(x, TN_I32, ids, T);
    tn_tensor *y = tn_transformer_forward(ctx, &m->net, x);
    if (!CHECK_CTX(ctx) || !CHECK_INT(tn_tensor_count(y), n) || !CHECK_INT(n, T * m->net.desc.vocab)) return;
    tn_read(y, TN_F64, got, n);
    for (int i = 0; i < n; i++) test_raise(&worst, fabs(got[i] - want[i]));
    WORST(model, worst, bound);
}

TEST(logits_in_double)
{
    for (int k = 0; k < MODELS; k++) {
        tn_ctx *ctx = ctx_of(TN_F64);
        loaded  m;
        if (load(ctx, models[k], &m)) check_logits(models[k], &m, 1e-12);
        tn_ctx_destroy(ctx);
    }
}

TEST(logits_in_float)
{
    for (int k = 0; k < MODELS; k++) {
        tn_ctx *ctx = ctx_of(TN_F32);
        loaded  m;
        if (load(ctx, models[k], &m)) check_logits(models[k], &m, 2e-4);
        tn_ctx_destroy(ctx);
    }
}

/* What was read is written and read again, also with lines that scale and shift. */
TEST(written_and_read_again)
{
    static const char *const names[] = {"stories-gated", "stories-first", "qwen3", "qwen3"};
    char *file = (char *)malloc(4 * ROOM);
    REQUIRE(file);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        tn_ctx     *ctx = ctx_of(TN_F64);
        size_t      used = 0;
        int64_t     lines;
        loaded      m, again;
        tn_name_map map[64];
        const tn_name_map *from = map_of(names[k], &lines);
        REQUIRE(load(ctx, names[k], &m) && lines <= 64);
        memcpy(map, from, (size_t)lines * sizeof *map);
        for (int64_t i = 0; i < lines && k == 3; i++) {
            map[i].scale = i % 3 ? -0.5 : 0;
            map[i].offset = strstr(map[i].param, "gain") ? 1 : 0;
            map[i].root_dim = i % 2 == 0;
        }
        again.params = tn_params_create(ctx);
        tn_transformer_init(again.params, "", &m.net.desc, &again.net);
        CHECK_STATUS(tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, 4 * ROOM, &used), map, lines, 0, NULL, 0),
                     TN_OK);
        tn_safetensors *f = tn_safetensors_open(ctx, tn_source_memory(file, used));
        if (k == 3) {                       /* line 0 is the table, of width 10 */
            double a[130], b[130];
            tn_read(m.net.embed.w, TN_F64, a, 130);
            tn_read(tn_safetensors_read(f, "model.embed_tokens.weight"), TN_F64, b, 130);
            for (int i = 0; i < 130; i++) CHECK_NEAR(a[i], b[i] * sqrt(10.0), 1e-15);
        }
        CHECK_STATUS(tn_transformer_read_mapped(again.params, &again.net, tn_source_memory(file, used), map, lines), TN_OK);
        check_logits(names[k], &again, 1e-12);
        tn_ctx_destroy(ctx);
    }
    free(file);
}

/* Gains of queries and keys: decoding, the gradient by differences, and the circuit of the first block's tokens. */
TEST(gains_of_queries_and_keys)
{
    tn_ctx  *ctx = ctx_of(TN_F64);
    int32_t  ids[6] = {1, 5, 2, 12, 0, 5};
    double   whole[6 * 13], step[13], worst = 0, all, up, down;
    loaded   m;
    REQUIRE(load(ctx, "qwen3", &m));
    tn_transformer_cache *cache = tn_transformer_cache_create(ctx, &m.net, 1, 6);
    tn_tensor            *x = tn_tensor_2d(ctx, TN_I32, 1, 6);
    tn_write(x, TN_I32, ids, 6);
    tn_read(tn_transformer_forward(ctx, &m.net, x), TN_F64, whole, 6 * 13);
    for (int t = 0; t < 6; t++) {
        tn_read(tn_transformer_decode(ctx, &m.net, tn_slice(x, 1, t, t + 1), cache), TN_F64, step, 13);
        for (int i = 0; i < 13; i++) test_raise(&worst, fabs(step[i] - whole[t * 13 + i]));
    }
    WORST("decoding with gains", worst, 1e-13);

    tn_tensor *gain = m.net.blocks[1].attn.qk_gain;
    double     slope[12], value[12];
    REQUIRE(gain && tn_tensor_count(gain) == 12);
    tn_record(ctx);
    tn_tensor *loss = tn_sum(ctx, tn_mul(ctx, tn_transformer_forward(ctx, &m.net, x), tn_transformer_forward(ctx, &m.net, x)));
    CHECK_STATUS(tn_backward(ctx, loss), TN_OK);
    REQUIRE(gain->grad && tn_read(gain->grad, TN_F64, slope, 12) == TN_OK);
    tn_read(gain, TN_F64, value, 12);
    worst = 0;
    for (int i = 0; i < 12; i++) {
        for (int side = 0; side < 2; side++) {
            const double kept = value[i];
            value[i] += side ? -1e-5 : 1e-5;
            tn_write(gain, TN_F64, value, 12);
            value[i] = kept;
            tn_tensor *y = tn_transformer_forward(ctx, &m.net, x);
            all = tn_item(tn_sum(ctx, tn_mul(ctx, y, y)));
            if (side) down = all;
            else up = all;
        }
        test_raise(&worst, fabs((up - down) / 2e-5 - slope[i]) / (1 + fabs(slope[i])));
    }
    tn_write(gain, TN_F64, value, 12);
    WORST("gradient of gains", worst, 1e-7);

    tn_circuit_desc at = ZERO;
    at.tokens = true; at.head = 1; at.query = at.key = 0;
    tn_circuit *qk = tn_circuit_qk(ctx, &m.net, &at);
    tn_tensor  *q = NULL, *k = NULL;
    tn_tap      taps[2] = {{"blocks.0.attn.q1", tn_tap_read, &q}, {"blocks.0.attn.k1", tn_tap_read, &k}};
    REQUIRE(qk);
    worst = 0;
    for (int64_t id = 0; id < 13; id++) {
        int32_t one = (int32_t)id;
        tn_tensor *token = tn_tensor_2d(ctx, TN_I32, 1, 1);
        tn_write(token, TN_I32, &one, 1);
        tn_transformer_run(ctx, &m.net, token, taps, 2);
        const double score = tn_item(tn_sum(ctx, tn_mul(ctx, tn_slice(q, 2, 1, 2), tn_slice(k, 2, 1, 2)))) / sqrt(6.0);
        tn_read(tn_circuit_rows(ctx, qk, id, 1), TN_F64, step, 13);
        test_raise(&worst, fabs(step[id] - score));
    }
    WORST("circuits with gains", worst, 1e-13);
    tn_circuit_destroy(qk);
    CHECK_CTX(ctx);

    tn_attention_desc d = ZERO;
    tn_attention      layer;
    d.dim = 4; d.heads = 2; d.qk_gain = true;
    CHECK_STATUS(tn_attention_init(m.params, "a", &d, &layer), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "qk_gain is true, expected false without qk_norm");
    tn_ctx_destroy(ctx);
}

TEST(configs_that_are_wrong)
{
#define STORY "{\"n_layer\":1,\"n_head\":2,\"n_ctx\":4,\"d_model\":8,\"d_hidden\":8,\"bilinear\":"
#define NANO  "{\"n_layer\":1,\"n_head\":2,\"n_embd\":8,\"vocab_size\":9,\"bilinear\":"
#define SIZES "\"vocab_size\":8,\"hidden_size\":8,\"intermediate_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":2," \
              "\"max_position_embeddings\":16"
    static const struct { const char *config, *why; } row[] = {
        {STORY "true,\"vocab_size\":9}", NULL}, {STORY "true,\"n_vocab\":9,\"model_type\":\"\"}", NULL},
        {STORY "true}", "missing key vocab_size, the number of the embedding's rows"},
        {STORY "1,\"vocab_size\":9}", "bilinear is 1, expected true or false"},
        {STORY "true,\"vocab_size\":9,\"gate\":\"tanh\"}", "gate is \"tanh\", expected null, relu, silu or gelu"},
        {STORY "true,\"vocab_size\":9,\"gate\":3}", "gate is not a word, expected null, relu, silu or gelu"},
        {STORY "true,\"vocab_size\":1e30}", "vocab_size is 1e+30, expected an integer from 1 to 2147483646"},
        {NANO "false}", NULL}, {NANO "null}", NULL},
        {NANO "false,\"squared_attn\":\"yes\"}", "squared_attn is \"yes\", expected true or false"},
        {NANO "true,\"expansion_factor\":2000000000}", "expansion_factor times n_embd is above 2^31 - 1"},
        {NANO "true,\"expansion_factor\":0}", "expansion_factor is 0, expected an integer from 1"},
        {"{\"bilinear\":true,\"n_embd\":8}", "missing key vocab_size"},
        {"{\"n_layer\":1,\"n_head\":2,\"n_embd\":null,\"vocab_size\":9,\"bilinear\":true}", "missing key n_embd"},
        {"{\"model_type\":\"gemma\"," SIZES "}", NULL},
        {"{\"model_type\":\"gemma\"," SIZES ",\"hidden_activation\":\"silu\"}",
         "hidden_activation is \"silu\", expected gelu_pytorch_tanh or gelu"},
        {"{\"model_type\":\"gemma2\"," SIZES "}", "model_type is \"gemma2\", expected tensornet, gpt2, llama, mistral, qwen2, "
         "qwen3 or gemma"},
        {"{\"model_type\":\"qwen3\"," SIZES ",\"head_dim\":0}", "head_dim is 0, expected an integer from 1"},
    };
    static const char   llama[] = "{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":1e-5}";
    tn_ctx             *ctx = ctx_of(TN_F32);
    tn_transformer_desc d = ZERO;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const tn_status s = tn_transformer_config_read(ctx, tn_source_memory(row[i].config, strlen(row[i].config)), &d);
        if (row[i].why) CHECK_ERROR(ctx, TN_ERR_FORMAT, row[i].why);
        else CHECK_STATUS(s, TN_OK);
        CHECK_CTX(ctx);
    }
    static const char *const required[][2] = {
        {"n_layer", NANO "true}"}, {"n_head", NANO "true}"}, {"n_embd", NANO "true}"}, {"vocab_size", NANO "true}"},
        {"n_layer", STORY "true}"}, {"n_head", STORY "true}"}, {"n_ctx", STORY "true}"}, {"d_model", STORY "true}"},
        {"d_hidden", STORY "true}"}, {"vocab_size", "{\"model_type\":\"gemma\"," SIZES "}"},
        {"hidden_size", "{\"model_type\":\"qwen3\"," SIZES "}"}, {"num_attention_heads", "{\"model_type\":\"llama\"," SIZES "}"}
    };
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {      /* null in the place of each */
        char        text[512], why[64];
        const char *key = strstr(required[i][1], required[i][0]), *end = key + strcspn(key, ",}");
        snprintf(text, sizeof text, "%.*s%s\":null%s", (int)(key - required[i][1]), required[i][1], required[i][0], end);
        snprintf(why, sizeof why, "missing key %s", required[i][0]);
        tn_transformer_config_read(ctx, tn_source_memory(text, strlen(text)), &d);
        CHECK_ERROR(ctx, TN_ERR_FORMAT, why);
    }
    static const struct { const char *acts; tn_mlp_kind mlp; } gemma[] = {
        {"", TN_MLP_GEGLU_TANH}, {",\"hidden_act\":\"gelu\"", TN_MLP_GEGLU_TANH},
        {",\"hidden_act\":\"gelu\",\"hidden_activation\":null", TN_MLP_GEGLU_TANH},
        {",\"hidden_activation\":\"gelu\"", TN_MLP_GEGLU},
        {",\"hidden_activation\":\"gelu\",\"hidden_act\":\"gelu_pytorch_tanh\"", TN_MLP_GEGLU},
        {",\"hidden_act\":\"gelu\",\"hidden_activation\":\"gelu_pytorch_tanh\"", TN_MLP_GEGLU_TANH},
    };
    for (size_t i = 0; i < sizeof gemma / sizeof *gemma; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\":\"gemma\"," SIZES "%s}", gemma[i].acts);
        CHECK_STATUS(tn_transformer_config_read(ctx, tn_source_memory(text, strlen(text)), &d), TN_OK);
        CHECK_INT(d.mlp, gemma[i].mlp);
    }
    static const char *const norms[] = {"null", "false", "true"};
    for (int i = 0; i < 3; i++) {
        char text[512];
        snprintf(text, sizeof text, STORY "true,\"vocab_size\":9,\"normalization\":%s}", norms[i]);
        CHECK_STATUS(tn_transformer_config_read(ctx, tn_source_memory(text, strlen(text)), &d), TN_OK);
        CHECK(d.no_norm == (i < 2));
    }
    CHECK_STATUS(tn_transformer_config_read(ctx, tn_source_memory(llama, strlen(llama)), &d), TN_OK);
    CHECK(d.norm_eps == 1e-5 && d.qk_norm_eps == 1e-6);
    CHECK_STATUS(read_config(ctx, "qwen3", "", &d), TN_OK);
    CHECK(d.qk_norm && d.qk_gain && d.qk_norm_eps == 1e-6 && d.d_qk == 6 && d.d_v == 6 && d.tied && !d.attn_bias);
    static const char qwen[] = "{\"model_type\":\"qwen3\"," SIZES "}";
    CHECK_STATUS(tn_transformer_config_read(ctx, tn_source_memory(qwen, strlen(qwen)), &d), TN_OK);
    CHECK_INT(d.d_qk, 128);                                 /* of transformers, whatever the width */
    static const char turning[] = "{\"model_type\":\"gemma\"," SIZES ",\"rope_parameters\":{\"rope_theta\":500}}";
    CHECK_STATUS(tn_transformer_config_read(ctx, tn_source_memory(turning, strlen(turning)), &d), TN_OK);
    CHECK_NEAR(d.rope_base, 500, 0);
    tn_ctx_destroy(ctx);
}

/* The sign of a zero is one of the bits of a file. */
TEST(zeros_keep_their_sign)
{
    tn_ctx *ctx = ctx_of(TN_F64);
    char    file[ROOM];
    double  v[13 * 12];
    size_t  used = 0;
    int64_t lines;
    loaded  m;
    const tn_name_map *map = tn_name_map_bilinear(&lines);
    REQUIRE(load(ctx, "stories-bilinear", &m));
    tn_read(m.net.embed.w, TN_F64, v, 13 * 12);
    v[0] = -0.0;
    tn_write(m.net.embed.w, TN_F64, v, 13 * 12);
    CHECK_STATUS(tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, ROOM, &used), map, lines, 0, NULL, 0), TN_OK);
    v[0] = 1;
    tn_write(m.net.embed.w, TN_F64, v, 13 * 12);
    CHECK_STATUS(tn_transformer_read_mapped(m.params, &m.net, tn_source_memory(file, used), map, lines), TN_OK);
    tn_read(m.net.embed.w, TN_F64, v, 13 * 12);
    CHECK(v[0] == 0 && signbit(v[0]));
    CHECK_CTX(ctx);
    map = tn_name_map_gemma(&lines);                        /* maps for reading only */
    tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, ROOM, &used), map, lines, 0, NULL, 0);
    CHECK_ERROR(ctx, TN_ERR_ARG, "the map is tn_name_map_gemma, expected one that is not for reading only");
    map = tn_name_map_modded(&lines);
    tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, ROOM, &used), map, lines, 0, NULL, 0);
    CHECK_ERROR(ctx, TN_ERR_ARG, "the map is tn_name_map_modded, expected one that is not for reading only");
    tn_ctx_destroy(ctx);
}

/* A config of less than the file has, and of more: no tensor is dropped, and the one that is not there is named. */
TEST(tensors_that_the_model_lacks)
{
    static const struct { const char *model, *from, *to, *why; } row[] = {
        {"modded-bilinear", "\"bilinear_attn\":true", "\"bilinear_attn\":false", "tensor \"transformer.h.0.attn.c_q2.weight\" [6,6] "
         "belongs to no parameter of the model"},
        {"modded-squared", "\"squared_mlp\":true", "\"squared_mlp\":false", NULL},      /* of the same tensors */
        {"modded-bilinear", "\"bilinear\":true", "\"bilinear\":false",
         "tensor \"transformer.h.0.mlp.Down.weight\" is [6,18], expected the shape of parameter blocks.0.mlp.p, [6,24]"},
        {"modded-squared", "\"bilinear_attn\":false", "\"bilinear_attn\":true",
         "there is no tensor \"transformer.h.0.attn.c_q2.weight\" for parameter blocks.0.attn.qk"},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        tn_ctx             *ctx = ctx_of(TN_F64);
        tn_transformer_desc desc = ZERO;
        loaded              m;
        int64_t             lines;
        char                text[ROOM], spaced[ROOM], whole[ROOM + 64];
        const tn_name_map  *map = tn_name_map_modded(&lines);
        size_t              n = 0;
        slurp(path_of(row[i].model, "config.json"), spaced);
        for (const char *s = spaced; *s; s++) if (!strchr(" \n", *s)) text[n++] = *s;
        text[n] = 0;
        const char *at = strstr(text, row[i].from);
        REQUIRE(at);
        snprintf(whole, sizeof whole, "%.*s%s%s", (int)(at - text), text, row[i].to, at + strlen(row[i].from));
        CHECK_STATUS(tn_transformer_config_read(ctx, tn_source_memory(whole, strlen(whole)), &desc), TN_OK);
        m.params = tn_params_create(ctx);
        tn_transformer_init(m.params, "", &desc, &m.net);
        const char     *weights = path_of(row[i].model, "model.safetensors");
        const tn_status s = tn_transformer_read_mapped(m.params, &m.net, tn_source_path(weights), map, lines);
        if (row[i].why && !CHECK(s != TN_OK && strstr(tn_ctx_error(ctx), row[i].why))) printf("     %s\n", tn_ctx_error(ctx));
        if (!row[i].why) CHECK_STATUS(s, TN_OK);
        tn_ctx_clear_error(ctx);
        tn_ctx_destroy(ctx);
    }
}

/* Headers that claim more than there is, and shapes of 2^60 numbers, in the place of a model's: nothing is allocated for them. */
TEST(hostile_sizes)
{
    static const struct { const char *header; uint64_t length; const char *why; } row[] = {
        {"{}", UINT64_C(1) << 60, "the header has 1152921504606846976 bytes, but the file only "},
        {"{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[1073741824,1073741824],\"data_offsets\":[0,4611686018427387904]}}", 0,
         "data_offsets are past the end of the file"},
        {"{\"transformer.h.0.attn.lamb\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,1152921504606846976]}}", 0,
         "data_offsets are past the end of the file"},
        {"{\"transformer.h.0.attn.lamb\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
         "there is no tensor \"lm_head.weight\""},            /* the first block does not use it */
        {"{\"transformer.h.1.attn.lamb\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "tensor \"transformer.h.1.attn.lamb\""},
        {"{\"transformer.wte.weight\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 0, "tensor \"transformer.wte.weight\" is []"},
    };
    tn_ctx *ctx = ctx_of(TN_F32);
    loaded  m;
    int64_t lines;
    const tn_name_map *map = tn_name_map_modded(&lines);
    REQUIRE(load(ctx, "modded-softmax", &m));
    const size_t live = tn_ctx_memory(ctx).live, peak = tn_ctx_memory(ctx).peak;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char           file[512] = {0};
        const size_t   n = strlen(row[i].header);
        const uint64_t length = row[i].length ? row[i].length : n;
        for (int k = 0; k < 8; k++) file[k] = (char)(length >> 8 * k & 255);
        memcpy(file + 8, row[i].header, n);
        const tn_status s = tn_transformer_read_mapped(m.params, &m.net, tn_source_memory(file, 8 + n + (i == 5 ? 4 : 0)), map, lines);
        CHECK(s != TN_OK);
        if (!CHECK(strstr(tn_ctx_error(ctx), row[i].why))) printf("     %s\n", tn_ctx_error(ctx));
        tn_ctx_clear_error(ctx);
        CHECK_INT(tn_ctx_memory(ctx).live, live);
    }
    CHECK(tn_ctx_memory(ctx).peak < peak + (1 << 20));
    tn_ctx_destroy(ctx);
}

TEST_MAIN(logits_in_double, logits_in_float, written_and_read_again, gains_of_queries_and_keys, configs_that_are_wrong,
          zeros_keep_their_sign, tensors_that_the_model_lacks, hostile_sizes)
