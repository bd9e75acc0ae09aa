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

/* The numbers of a list in golden.json; returns how many. */
static int numbers(const char *json, const char *key, double *out, int room)
{
    char  quoted[32];
    char *end;
    int   n = 0;
    snprintf(quoted, sizeof quoted, "\"%s\":[", key);
    const char *at = strstr(json, quoted);
    if (!CHECK(at)) return 0;
    for (at += strlen(quoted); *at != ']' && n < room; at = *end == ',' ? end + 1 : end) out[n++] = strtod(at, &end);
    return n;
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
    "modded-softmax", "modded-squared", "modded-bilinear", "modded-differential", "qwen3", "gemma", "gemma2"
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
    const int T = numbers(golden, "ids", number, 32), n = numbers(golden, "logits", want, MOST);
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

TEST_MAIN(logits_in_double, logits_in_float)
