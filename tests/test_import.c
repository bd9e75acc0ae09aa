/* test_import.c: models of Hugging Face's transformers: several files of weights, and what transformers computes. */

#include "kit.h"

/* The path of a file of tests/data/hf, valid until the next call but one. */
static const char *path_of(const char *model, const char *file)
{
    static char path[2][TEST_PATH];
    static int  which;
    char        name[128];
    which = !which;
    snprintf(name, sizeof name, "hf/%s/%s", model, file);
    return CHECK(test_data(name, path[which])) ? path[which] : "";
}

static char *slurp(const char *path)
{
    FILE  *f = fopen(path, "rb");
    char  *p = (char *)calloc(1, 1 << 16);
    size_t n = f && p ? fread(p, 1, (1 << 16) - 1, f) : 0;
    CHECK(f && p && n > 0);
    if (f) fclose(f);
    return p;
}

typedef struct loaded { tn_params *params; tn_transformer net; } loaded;

static bool load(tn_ctx *ctx, const char *model, const char *weights, loaded *m)
{
    tn_transformer_desc desc;
    int64_t             lines;
    const tn_name_map  *map = strcmp(model, "gpt2") == 0 ? tn_name_map_gpt2(&lines) : tn_name_map_llama(&lines);
    m->params = tn_params_create(ctx);
    tn_transformer_config_read(ctx, tn_source_path(path_of(model, "config.json")), &desc);
    tn_transformer_init(m->params, "", &desc, &m->net);
    tn_transformer_read_mapped(m->params, &m->net, tn_source_path(path_of(model, weights)), map, lines);
    return CHECK_CTX(ctx);
}

static const struct { const char *model, *weights; } models[] = {
    {"gpt2", "model.safetensors.index.json"}, {"llama", "model.safetensors.index.json"}, {"mistral", "model.safetensors"},
    {"qwen2", "model.safetensors"}
};
enum { MODELS = sizeof models / sizeof *models, NEW = 100 };

/* 100 tokens by greedy decoding, as transformers has them; the logits after the prompt, whose RoPE transformers computes in
   float. */
static void check_model(const char *model, const char *weights, tn_dtype dtype)
{
    tn_ctx *ctx = ctx_of(dtype);
    char   *golden = slurp(path_of(model, "golden.json"));
    double  prompt[32], want[NEW], logits[40], got[512];
    int     n = golden_numbers(golden, "prompt", prompt, 32), equal = 0;
    loaded  m;
    double  worst = 0;
    CHECK_INT(golden_numbers(golden, "ids", want, NEW), NEW);
    CHECK_INT(golden_numbers(golden, "logits", logits, 40), 40);
    REQUIRE(load(ctx, model, weights, &m));
    tn_transformer_cache *cache = tn_transformer_cache_create(ctx, &m.net, 1, n + NEW);
    for (int k = 0; k < NEW; k++) {
        const int count = k == 0 ? n : 1;
        int32_t   ids[32], best = 0;
        tn_ctx_reset(ctx);
        for (int i = 0; i < count; i++) ids[i] = (int32_t)(k == 0 ? prompt[i] : want[k - 1]);
        tn_tensor *x = tn_tensor_2d(ctx, TN_I32, 1, count);
        tn_write(x, TN_I32, ids, count);
        tn_tensor *y = tn_transformer_decode(ctx, &m.net, x, cache);
        REQUIRE(y && tn_read(tn_slice(y, 1, count - 1, count), TN_F64, got, m.net.desc.vocab) == TN_OK);
        for (int i = 0; k == 0 && i < 40; i++) test_raise(&worst, fabs(got[i] - logits[i]) / (1 + fabs(logits[i])));
        for (int i = 1; i < m.net.desc.vocab; i++) if (got[i] > got[best]) best = i;
        equal += best == (int32_t)want[k];
    }
    CHECK_INT(equal, NEW);
    WORST(model, worst, dtype == TN_F64 ? 2e-6 : 2e-5);
    CHECK_CTX(ctx);
    free(golden);
    tn_ctx_destroy(ctx);
}

TEST(greedy_tokens_in_double) { for (int k = 0; k < MODELS; k++) check_model(models[k].model, models[k].weights, TN_F64); }
TEST(greedy_tokens_in_float)  { for (int k = 0; k < MODELS; k++) check_model(models[k].model, models[k].weights, TN_F32); }

/* What was read is written again: the same tensors under the same names, one of each group of equal heads. */
TEST(written_as_it_was_read)
{
    enum { ROOM = 1 << 18 };
    char *file = (char *)malloc(ROOM);
    REQUIRE(file);
    for (int k = 0; k < MODELS; k++) {
        tn_ctx       *ctx = ctx_of(TN_F32);
        const tn_metadata note = {"format", "pt"};
        size_t        used = 0;
        int64_t       lines, tied = 0;
        loaded        m;
        REQUIRE(load(ctx, models[k].model, models[k].weights, &m));
        const tn_name_map *map = k == 0 ? tn_name_map_gpt2(&lines) : tn_name_map_llama(&lines);
        int64_t            kv = tn_transformer_kv_heads(&m.net);
        CHECK_INT(kv, k == 0 ? 4 : 2);
        CHECK_STATUS(tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, ROOM, &used), map, lines, kv,
            &note, 1),
                     TN_OK);
        tn_safetensors *from = tn_safetensors_open(ctx, tn_source_path(path_of(models[k].model, models[k].weights)));
        tn_safetensors *to = tn_safetensors_open(ctx, tn_source_memory(file, used));
        REQUIRE(from && to);
        CHECK_STR(tn_safetensors_metadata(to, "format"), "pt");
        CHECK_INT(tn_safetensors_count(to), tn_safetensors_count(from));
        for (int64_t i = 0; i < tn_safetensors_count(to); i++) {
            const char *name = tn_safetensors_at(to, i)->name;
            tn_tensor  *a = tn_safetensors_read(to, name), *b = tn_safetensors_read(from, name);
            if (!CHECK(a && b && a->rank == b->rank && tn_tensor_count(a) == tn_tensor_count(b))) {
                printf("     %s: %s\n", models[k].model, name);
                break;
            }
            for (int d = 0; d < a->rank; d++) CHECK_INT(a->shape[d], b->shape[d]);
            CHECK(memcmp(a->data, b->data, a->bytes) == 0);
            tied++;
        }
        CHECK_INT(tied, tn_safetensors_count(to));
        if (k == 1) {
            CHECK_STATUS(tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, ROOM, &used), map, lines, 1,
                NULL, 0),
                         TN_ERR_ARG);
            CHECK_ERROR(ctx, TN_ERR_ARG, "name map: kv_heads is 1, but 2 heads of keys and values differ");
            CHECK_STATUS(tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, ROOM, &used), map, lines, 3,
                NULL, 0),
                         TN_ERR_ARG);
            CHECK_ERROR(ctx, TN_ERR_ARG, "name map: kv_heads is 3, expected a divisor of the 4 heads");
            CHECK_STATUS(tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, ROOM, &used), map, 3, 0, NULL,
                0),
                         TN_ERR_ARG);
            CHECK_ERROR(ctx, TN_ERR_ARG, "name map: no line names parameter blocks.0.attn.v [16,16]");
        }
        CLOSE_CTX(ctx);
    }
    free(file);
}

/* A map whose line names no part of the file's rows, or whose lines leave some of them out: nothing is written. */
TEST(maps_that_cannot_be_written)
{
    enum { ROOM = 1 << 18, FIRST = 4 };                      /* the three lines of c_attn.weight */
    static const struct { int line, part, parts; tn_status status; const char *why; } bad[] = {
        {FIRST, -1, 2, TN_ERR_SHAPE, "name map: parameter blocks.0.attn.qk is [2,16,16], which line 4 cannot divide"},
        {FIRST, 3, 3, TN_ERR_SHAPE, "name map: parameter blocks.0.attn.qk is [2,16,16], which line 4 cannot divide"},
        {FIRST, 0, -3, TN_ERR_SHAPE, "name map: parameter blocks.0.attn.qk is [2,16,16], which line 4 cannot divide"},
        {FIRST, 1, 0, TN_ERR_SHAPE, "name map: parameter blocks.0.attn.qk is [2,16,16], which line 4 cannot divide"},
        {FIRST + 2, -1, 3, TN_ERR_SHAPE, "name map: parameter blocks.0.attn.v is [16,16], which does not fit into "},
        {FIRST + 2, 3, 3, TN_ERR_SHAPE, "name map: parameter blocks.0.attn.v is [16,16], which does not fit into "},
        {FIRST + 2, 1, 3, TN_ERR_ARG, "name map: no line gives row 32 of transformer.h.0.attn.c_attn.weight, expected lines "
         "for all of its 48 rows"},
    };
    char              *file = (char *)malloc(ROOM);
    tn_ctx            *ctx = ctx_of(TN_F32);
    int64_t            lines;
    size_t             used;
    const tn_name_map *map = tn_name_map_gpt2(&lines);
    tn_name_map        own[64];
    loaded             m;
    REQUIRE(file && lines <= 64 && load(ctx, models[0].model, models[0].weights, &m));
    size_t live = tn_ctx_memory(ctx).live;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        memcpy(own, map, (size_t)lines * sizeof *own);
        own[bad[k].line].file_part = bad[k].part;
        own[bad[k].line].file_parts = bad[k].parts;
        CHECK_STATUS(tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, ROOM, &used), own, lines, 0, NULL,
                                                 0), bad[k].status);
        CHECK_ERROR(ctx, bad[k].status, bad[k].why);
        CHECK_INT(tn_ctx_memory(ctx).live, live);
    }
    CHECK_STATUS(tn_transformer_write_mapped(m.params, NULL, tn_sink_memory(file, ROOM, &used), map, lines, 0, NULL, 0),
                 TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "transformer_write_mapped: the model is NULL, expected one of tn_transformer_init");
    CHECK_STATUS(tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, ROOM, &used), map, -1, 0, NULL, 0), TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "transformer_write_mapped: -1 lines of a map at an address, expected a list of 0 or more");
    own[0].file = NULL;
    CHECK_STATUS(tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, ROOM, &used), own, lines, 0, NULL, 0),
                 TN_ERR_ARG);
    CHECK_ERROR(ctx, TN_ERR_ARG, "name map: file is NULL in line 0, expected a name");
    tn_ctx_destroy(ctx);
    free(file);
}

/* Equal heads are counted only where all blocks have one set of queries and keys; and without memory nothing is counted. */
TEST(heads_that_differ)
{
    enum { ROOM = 1 << 18 };
    char               *file = (char *)malloc(ROOM);
    test_heap           h = ZERO;
    tn_desc             d = ZERO;
    tn_ctx             *ctx;
    tn_transformer_desc desc = ZERO;
    tn_transformer      net;
    int64_t             lines, failed = 0;
    size_t              used;
    const tn_name_map  *map = tn_name_map_llama(&lines);
    tn_status           s = TN_ERR_MEMORY;
    loaded              m;
    REQUIRE(file);
    d.allocator = test_heap_allocator(&h);
    REQUIRE(tn_ctx_create(&d, &ctx, NULL) == TN_OK && load(ctx, models[1].model, models[1].weights, &m));
    for (uint64_t k = 1; k < 8; k++) {                       /* 1 head of the 2 that differ: refused, or out of memory */
        h.count = 0;
        h.fail_at = k;
        s = tn_transformer_write_mapped(m.params, &m.net, tn_sink_memory(file, ROOM, &used), map, lines, 1, NULL, 0);
        h.fail_at = 0;
        failed += s == TN_ERR_MEMORY;
        CHECK_ERROR(ctx, k > 1 && s == TN_ERR_ARG ? TN_ERR_ARG : TN_ERR_MEMORY, "");
    }
    CHECK(failed > 1);
    CHECK_STATUS(s, TN_ERR_ARG);

    desc.vocab = 8; desc.context = 8; desc.dim = 8; desc.layers = 2; desc.heads = 2; desc.hidden = 8;
    desc.attention_count = 2;
    desc.attention_cycle[0] = TN_ATTENTION_SOFTMAX;
    desc.attention_cycle[1] = TN_ATTENTION_BILINEAR;
    tn_params *params = tn_params_create(ctx);
    REQUIRE(tn_transformer_init(params, "", &desc, &net) == TN_OK);
    for (int l = 0; l < 2; l++) {                            /* all heads are equal */
        memset(net.blocks[l].attn.qk->data, 0, net.blocks[l].attn.qk->bytes);
        memset(net.blocks[l].attn.v->data, 0, net.blocks[l].attn.v->bytes);
    }
    CHECK_INT(tn_transformer_kv_heads(&net), 2);
    CHECK_INT(tn_transformer_kv_heads(NULL), -1);
    CLOSE_CTX(ctx);
    free(file);
}

/* ---- several files ------------------------------------------------------------- */

static char *in_tmp(const char *name)
{
    static char path[TEST_PATH];
    snprintf(path, sizeof path, "%s/test_import.%s", test_folder(), name);
    return path;
}

/* A file with tensors of one number. */
static void write_weights(tn_ctx *ctx, const char *name, const char *a, const char *b)
{
    tn_tensor *t = tn_tensor_1d(ctx, TN_F32, 1);
    tn_named_tensor   n[2];
    n[0].name = a; n[1].name = b;
    n[0].tensor = n[1].tensor = t;
    CHECK_STATUS(tn_safetensors_write(ctx, tn_sink_path(in_tmp(name)), n, 2, NULL, 0), TN_OK);
}

TEST(an_index_is_one_file)
{
    tn_ctx         *ctx = ctx_of(TN_F32);
    tn_safetensors *all = tn_safetensors_open(ctx, tn_source_path(path_of("llama", "model.safetensors.index.json")));
    tn_safetensors *one = tn_safetensors_open(ctx, tn_source_path(path_of("llama", "model-00002-of-00002.safetensors")));
    int64_t         count = tn_safetensors_count(all), last = 0;
    REQUIRE(all && one);
    CHECK_INT(count, 20);
    for (int64_t i = 0; i < count; i++) {
        const tn_safetensors_entry *e = tn_safetensors_at(all, i);
        CHECK(e->part >= last && tn_safetensors_find(all, e->name) == e);
        last = e->part;
    }
    CHECK_INT(last, 1);
    for (int64_t i = 0; i < tn_safetensors_count(one); i++) {
        const char *name = tn_safetensors_at(one, i)->name;
        char        a[4096], b[4096];
        size_t      bytes = (size_t)tn_safetensors_at(one, i)->bytes;
        REQUIRE(bytes <= sizeof a);
        CHECK_STATUS(tn_safetensors_read_bytes(one, name, a, bytes), TN_OK);
        CHECK_STATUS(tn_safetensors_read_bytes(all, name, b, bytes), TN_OK);
        CHECK(memcmp(a, b, bytes) == 0);
        tn_tensor_destroy(tn_safetensors_read(all, name));
    }
    CHECK(!tn_safetensors_metadata(all, "format"));
    CHECK_CTX(ctx);
    tn_safetensors_close(all);
    tn_ctx_destroy(ctx);                                     /* closes the other */
}

TEST(an_index_that_is_wrong)
{
    static const struct { const char *index, *why; } bad[] = {
        {"{\"weight_map\":{\"a\":\"test_import.one.safetensors\",\"z\":\"test_import.one.safetensors\"}}",
         "tensor \"z\" is not in \"test_import.one.safetensors\", where the index has it"},
        {"{\"weight_map\":{\"a\":\"test_import.one.safetensors\",\"c\":\"test_import.three.safetensors\"}}",
         "three.safetensors: could not be opened"},
        {"{\"weight_map\":{\"a\":\"test_import.one.safetensors\",\"c\":\"test_import.two.safetensors\"}}",
         "tensor \"b\" is in "},
        {"{\"weight_map\":{\"a\":\"test_import.one.safetensors\",\"a\":\"test_import.one.safetensors\"}}",
         "duplicate key \"a\""},
        {"{\"weight_map\":{\"a\":\"../one.safetensors\"}}",
         "the file of tensor \"a\" is \"../one.safetensors\", expected a name"},
        {"{\"weight_map\":{\"a\":\"C:one.safetensors\"}}",
         "the file of tensor \"a\" is \"C:one.safetensors\", expected a name"},
        {"{\"weight_map\":{\"a\":\"\"}}", "the file of tensor \"a\" is \"\", expected a name"},
        {"{\"metadata\":{\"total_size\":1.5e3,\"x\":[{},[null,true]]}}", "missing key weight_map"},
        {"{\"weight_map\":{},\"weight_map\":{}}", "duplicate key weight_map"},
        {"{\"metadata\":}", "unexpected character, expected a value"},
        {"{\"metadata\":{\"x\":1", "unexpected end of file, expected a value"},
        {"{\"weight_map\":{}} x", "unexpected character, expected the end of the file"},
        {"{\"weight_map\":[]}", "unexpected character, expected '{'"},
        {"", "unexpected end of file, expected '{'"},
    };
    static const char *const written[] = {"one.safetensors", "two.safetensors", "four.safetensors", "bad.index.json"};
    tn_ctx *ctx = ctx_of(TN_F32);
    write_weights(ctx, "one.safetensors", "a", "b");
    write_weights(ctx, "two.safetensors", "b", "c");
    write_weights(ctx, "four.safetensors", "c", "d");
    size_t live = tn_ctx_memory(ctx).live;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        write_text(in_tmp("bad.index.json"), bad[k].index);
        if (!CHECK(!tn_safetensors_open(ctx, tn_source_path(in_tmp("bad.index.json")))))
            printf("     accepted, expected: %s\n", bad[k].why);
        CHECK(strstr(tn_ctx_error(ctx), bad[k].why));
        if (!strstr(tn_ctx_error(ctx), bad[k].why)) printf("     %s\n     %s\n", tn_ctx_error(ctx), bad[k].why);
        tn_ctx_clear_error(ctx);
        CHECK_INT(tn_ctx_memory(ctx).live, live);
    }
    write_text(in_tmp("bad.index.json"), "{\"metadata\":{\"total_size\":1.5e3,\"x\":[{},[null,true]]},\"weight_map\":"
               "{\"a\":\"test_import.one.safetensors\",\"c\":\"test_import.four.safetensors\"}}");
    CHECK_INT(tn_safetensors_count(tn_safetensors_open(ctx, tn_source_path(in_tmp("bad.index.json")))), 4);
    CLOSE_CTX(ctx);
    for (size_t k = 0; k < sizeof written / sizeof *written; k++) remove(in_tmp(written[k]));
}

/* ---- tied heads, and what nothing reads ---------------------------------------- */

static void log_line(void *user, tn_log_level level, const char *message)
{
    char *lines = (char *)user;
    if (level == TN_LOG_WARN) snprintf(lines + strlen(lines), 1024 - strlen(lines), "%s\n", message);
}

/* Writes GPT-2 again, into one file: `table` is the name of its embedding, and `head` that of another tensor of this shape, or
   NULL; `other` is a further name of the table, which stands in the metadata. */
static void write_gpt2(tn_ctx *ctx, const char *table, const char *head, bool equal, const char *other)
{
    tn_safetensors *f = tn_safetensors_open(ctx, tn_source_path(path_of("gpt2", "model.safetensors.index.json")));
    const int64_t   count = tn_safetensors_count(f);
    const tn_metadata   note = {other, table};
    tn_named_tensor        named[64];
    REQUIRE(f && count < 60);
    for (int64_t i = 0; i < count; i++) {
        named[i].name = tn_safetensors_at(f, i)->name;
        named[i].tensor = tn_safetensors_read(f, named[i].name);
        if (strcmp(named[i].name, "transformer.wte.weight")) continue;
        named[i].name = table;
        named[count].name = head;
        named[count].tensor = equal ? named[i].tensor : tn_scale(ctx, (tn_tensor *)named[i].tensor, -1);
    }
    CHECK_STATUS(tn_safetensors_write(ctx, tn_sink_path(in_tmp("again.safetensors")), named, count + (head != NULL), &note,
                                      other ? 1 : 0), TN_OK);
    tn_safetensors_close(f);
}

static tn_status read_gpt2(tn_ctx *ctx, bool tied, loaded *m)
{
    tn_transformer_desc desc;
    int64_t             lines;
    const tn_name_map  *map = tn_name_map_gpt2(&lines);
    tn_transformer_config_read(ctx, tn_source_path(path_of("gpt2", "config.json")), &desc);
    desc.tied = tied;
    m->params = tn_params_create(ctx);
    tn_transformer_init(m->params, "", &desc, &m->net);
    return tn_transformer_read_mapped(m->params, &m->net, tn_source_path(in_tmp("again.safetensors")), map, lines);
}

/* The sum of the elements of a b */
static double product(tn_ctx *ctx, tn_tensor *a, tn_tensor *b) { return tn_item(tn_sum(ctx, tn_mul(ctx, a, b))); }

TEST(tied_heads)
{
    static const struct { const char *table, *head; bool equal; const char *other; bool tied; double sign; } row[] = {
        {"transformer.wte.weight", "lm_head.weight", true, NULL, true, 1},
        {"transformer.wte.weight", "lm_head.weight", false, NULL, true, 0},
        {"transformer.wte.weight", "lm_head.weight", false, NULL, false, -1},
        {"lm_head.weight", NULL, true, "transformer.wte.weight", true, 1},           /* as save_model leaves one out */
        {"lm_head.weight", NULL, true, "wte.weight", false, 1},
        {"transformer.wte.weight", NULL, true, "lm_head.weight", true, 1},
        {"wte.weight", NULL, true, "lm_head.weight", false, 1},
    };
    tn_ctx *ctx = ctx_of(TN_F64);
    loaded  want, m;
    REQUIRE(load(ctx, "gpt2", "model.safetensors.index.json", &want));
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        write_gpt2(ctx, row[i].table, row[i].head, row[i].equal, row[i].other);
        tn_status s = read_gpt2(ctx, row[i].tied, &m);
        if (row[i].sign == 0) {
            CHECK_INT(s, TN_ERR_DATA);
            CHECK_ERROR(ctx, TN_ERR_DATA, "\"lm_head.weight\" differs from \"transformer.wte.weight\", expected equal ones");
        } else if (CHECK_CTX(ctx)) {
            const double square = product(ctx, want.net.embed.w, want.net.embed.w);
            CHECK(product(ctx, m.net.embed.w, want.net.embed.w) == square);
            CHECK(product(ctx, m.net.head.w, want.net.embed.w) == row[i].sign * square);
        }
    }
    tn_ctx_destroy(ctx);
    remove(in_tmp("again.safetensors"));
}

TEST(keys_that_nothing_reads)
{
#define SMALL "\"vocab_size\":8,\"hidden_size\":8,\"intermediate_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":2," \
              "\"max_position_embeddings\":16,"
    static const struct { const char *config, *says; } row[] = {
        {"{\"model_type\":\"llama\"," SMALL "\"logit_scale\":2,\"use_qk_norm\":false,\"mscale\":null,\"x\":[],\"bos_token_id\":1,"
         "\"attention_dropout\":0.1}", "memory: these keys are not read, as no setting here has them: \"logit_scale\"\n"},
        {"{\"model_type\":\"llama\"," SMALL "\"sliding_window\":4,\"a\":1,\"b\":1,\"c\":1,\"d\":1}",
         "memory: these keys are not read, as no setting here has them: \"sliding_window\", \"a\", \"b\", \"c\", ...\n"},
        {"{\"model_type\":\"mistral\"," SMALL "\"sliding_window\":4,\"attention_bias\":true}",
         "memory: attention_bias and mlp_bias are read for llama only\n"},
        {"{\"model_type\":\"llama\"," SMALL "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2,\"mscale\":3}}",
         "memory: these keys of RoPE are not read, as no setting here has them: \"mscale\"\n"},
        {"{\"model_type\":\"llama\"," SMALL "\"quantization_config\":{\"bits\":4}}", NULL},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char                said[1024] = "";
        tn_ctx             *ctx = NULL;
        tn_desc             d = ZERO;
        tn_transformer_desc desc;
        tn_source           source = tn_source_memory(row[i].config, strlen(row[i].config));
        d.log = log_line;
        d.log_user = said;
        REQUIRE(tn_ctx_create(&d, &ctx, NULL) == TN_OK);
        CHECK_INT(tn_transformer_config_read(ctx, source, &desc), row[i].says ? TN_OK : TN_ERR_FORMAT);
        if (row[i].says) test_check_str(said, row[i].says, __FILE__, __LINE__, "the log");
        else CHECK_ERROR(ctx, TN_ERR_FORMAT, "quantization_config is given, expected weights that are not quantised (line 1, column ");
        tn_ctx_destroy(ctx);
    }
}

/* ---- RoPE of Llama 3.1 ---------------------------------------------------------- */

TEST(scaled_rotations)
{
    enum { T = 40, D = 16 };
    static const tn_rope_scaling kinds[] = {{8, 1, 4, 32}, {2.5, 0, 0, 0}};
    static const int64_t shape[4] = {1, T, 1, D};
    for (int k = 0; k < 2; k++)
        for (int backend = 0; backend < 2; backend++) {
            const tn_rope_scaling s = kinds[k];
            double       x[T * D], got[T * D], worst = 0;
            uint64_t     state = 5;
            tn_rope_desc rope = ZERO;
            tn_desc      desc = ZERO;
            tn_ctx      *ctx;
            desc.dtype = TN_F64;
            desc.backend = backend ? tn_reference_backend() : tn_cpu_backend();
            REQUIRE(tn_ctx_create(&desc, &ctx, NULL) == TN_OK);
            rope.base = 500;
            rope.scaling = s;
            for (int i = 0; i < T * D; i++) x[i] = (double)test_random_int(&state, -100, 100) / 64;
            tn_tensor *t = tn_tensor_create(ctx, TN_REAL, 4, shape);
            tn_write(t, TN_F64, x, T * D);
            tn_read(tn_rope(ctx, t, &rope), TN_F64, got, T * D);
            for (int p = 0; p < T; p++)
                for (int i = 0; i < D / 2; i++) {
                    double rate = pow(500, -2.0 * i / (double)D), wave = 6.283185307179586477 / rate, a = x[p * D + i],
                        b = x[p * D + i + D / 2];
                    if (k == 1 || wave > s.context / s.low) rate /= s.factor;
                    else if (wave >= s.context / s.high) {
                        const double smooth = (s.context / wave - s.low) / (s.high - s.low);
                        rate = (1 - smooth) * rate / s.factor + smooth * rate;
                    }
                    double angle = p * rate;
                    test_raise(&worst, fabs(got[p * D + i] - (a * cos(angle) - b * sin(angle))));
                    test_raise(&worst, fabs(got[p * D + i + D / 2] - (b * cos(angle) + a * sin(angle))));
                }
            WORST("scaled rotations", worst, 1e-13);
            rope.scaling.factor = -1;
            CHECK(!tn_rope(ctx, t, &rope));
            CHECK_ERROR(ctx, TN_ERR_ARG, "rope: factor of the scaling is -1, expected a finite number >= 1e-30");
            rope.scaling.factor = 8;
            rope.scaling.context = 32;
            rope.scaling.low = rope.scaling.high = 4;
            CHECK(!tn_rope(ctx, t, &rope));
            CHECK_ERROR(ctx, TN_ERR_ARG, "rope: low and high of the scaling are 4 and 4, expected 0 <= low < high");
            tn_ctx_destroy(ctx);
        }
}

/* Own config.json keeps it; other kinds are refused by name. */
TEST(configs_of_relatives)
{
#define SIZES "\"vocab_size\":8,\"hidden_size\":8,\"intermediate_size\":8,\"num_hidden_layers\":2,\"num_attention_heads\":2," \
              "\"max_position_embeddings\":16"
    static const struct { const char *config, *why; int64_t window; } cases[] = {
        {"{\"model_type\":\"mistral\"," SIZES "}", NULL, 4096},
        {"{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":null}", NULL, 0},
        {"{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":7}", NULL, 7},
        {"{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":-7}",
         "sliding_window is not null or a positive integer", 0},
        {"{\"model_type\":\"qwen2\"," SIZES ",\"sliding_window\":7}", NULL, 0},
        {"{\"model_type\":\"qwen2\"," SIZES ",\"sliding_window\":7,\"use_sliding_window\":true,\"max_window_layers\":0}",
         NULL, 7},
        {"{\"model_type\":\"qwen2\"," SIZES ",\"sliding_window\":7,\"use_sliding_window\":true}", NULL, 0},
        {"{\"model_type\":\"qwen2\"," SIZES ",\"sliding_window\":7,\"use_sliding_window\":true,\"max_window_layers\":1}",
         "1 of 2 layers have a window, expected all or none", 0},
        {"{\"model_type\":\"qwen2\"," SIZES ",\"sliding_window\":7,\"use_sliding_window\":true,\"layer_types\":"
         "[\"sliding_attention\",\"full_attention\"]}", "1 of 2 layers have a window, expected all or none", 0},
        {"{\"model_type\":\"qwen2\"," SIZES ",\"sliding_window\":7,\"use_sliding_window\":true,\"layer_types\":"
         "[\"sliding_attention\",\"sliding_attention\"]}", NULL, 7},
        {"{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":0}",
         "sliding_window is not null or a positive integer", 0},
        {"{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":7,\"layer_types\":[\"full_attention\"]}",
         "layer_types has 1 words, expected 2, the number of layers", 0},
        {"{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":7,\"layer_types\":"
         "[\"chunked_attention\",\"sliding_attention\"]}",
         "layer_types has \"chunked_attention\", expected full_attention or sliding_attention", 0},
        {"{\"model_type\":\"mistral\"," SIZES ",\"layer_types\":[1,2]}", "layer_types has what is not a word", 0},
        {"{\"model_type\":\"mistral\"," SIZES ",\"layer_types\":\"full_attention\"}", "layer_types is not an array", 0},
        {"{\"model_type\":\"qwen2\"," SIZES ",\"use_sliding_window\":\"true\"}", "use_sliding_window is not true or false", 0},
        {"{\"model_type\":\"qwen2\"," SIZES ",\"use_sliding_window\":true,\"max_window_layers\":\"0\"}",
         "max_window_layers is not an integer", 0},
        {"{\"model_type\":\"qwen2\"," SIZES ",\"use_sliding_window\":true,\"max_window_layers\":1.5}",
         "max_window_layers is not an integer", 0},
        {"{\"model_type\":\"llama\"," SIZES ",\"is_causal\":false}", "is_causal is false, expected true", 0},
        {"{\"model_type\":\"llama\"," SIZES ",\"is_causal\":true}", NULL, 0},
        {"{\"model_type\":\"gpt2\",\"vocab_size\":8,\"n_embd\":8,\"n_layer\":1,\"n_head\":1,\"n_positions\":8,"
         "\"is_causal\":false}", "is_causal is false, expected true", 0},
        {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"type\":\"linear\"}}",
         "rope_scaling: missing key factor", 0},
        {"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}}",
         "rope_scaling: rope_type is \"dynamic\", expected default, linear or llama3", 0},
    };
    tn_ctx             *ctx = ctx_of(TN_F32);
    tn_transformer_desc d, again;
    char                text[8192];
    size_t              used;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const tn_status s = tn_transformer_config_read(ctx, tn_source_memory(cases[k].config, strlen(cases[k].config)), &d);
        if (cases[k].why) CHECK_ERROR(ctx, TN_ERR_FORMAT, cases[k].why);
        else if (CHECK_STATUS(s, TN_OK)) CHECK_INT(d.window, cases[k].window);
    }
    CHECK_STATUS(tn_transformer_config_read(ctx, tn_source_path(path_of("llama", "config.json")), &d), TN_OK);
    CHECK(d.rope_scaling.factor == 8 && d.rope_scaling.low == 1 && d.rope_scaling.high == 4 && d.rope_scaling.context == 32);
    CHECK_STATUS(tn_transformer_config_write(ctx, &d, tn_sink_memory(text, sizeof text, &used)), TN_OK);
    CHECK_STATUS(tn_transformer_config_read(ctx, tn_source_memory(text, used), &again), TN_OK);
    CHECK(memcmp(&d.rope_scaling, &again.rope_scaling, sizeof d.rope_scaling) == 0);
    CHECK_STATUS(tn_transformer_config_read(ctx, tn_source_path(path_of("qwen2", "config.json")), &d), TN_OK);
    CHECK(d.attn_bias && !d.attn_out_bias && !d.mlp_bias && d.tied && d.window == 0);
    CLOSE_CTX(ctx);
}

TEST_MAIN(greedy_tokens_in_double, greedy_tokens_in_float, written_as_it_was_read, maps_that_cannot_be_written, heads_that_differ,
          an_index_is_one_file, an_index_that_is_wrong, scaled_rotations, configs_of_relatives,
          tied_heads, keys_that_nothing_reads)
