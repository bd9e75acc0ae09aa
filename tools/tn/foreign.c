/* foreign.c - models of other programs: what tn import and tn look read of a folder. They are Hugging Face's transformers, by
   model_type, and two kinds without one: bilinear-decomposition (github.com/tdooms/bilinear-decomposition) and modded-nanogpt
   (github.com/loganriggs/modded-nanogpt). What has no counterpart is a reason, a new string, and not the end of the program */
#include "tn.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STORIES "bilinear-decomposition"
#define MODDED  "modded-nanogpt"

const tn_name_map *foreign_names(const char *type, int64_t *lines)
{
    static const struct { const char *type; const tn_name_map *(*map)(int64_t *lines); } maps[] = {
        {"gpt2", tn_name_map_gpt2}, {STORIES, tn_name_map_bilinear}, {MODDED, tn_name_map_modded}, {"gemma", tn_name_map_gemma}
    };
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) if (!strcmp(type, maps[i].type)) return maps[i].map(lines);
    return tn_name_map_llama(lines);
}

static bool folder_has(const char *folder, const char *name)
{
    char *path = join_path(folder, name);
    bool  has = is_file(path);
    free(path);
    return has;
}

/* Returns the string that a key of a JSON object has, a new string, or NULL if it has no string. */
static char *json_text(const char *text, size_t bytes, const char *key)
{
    const char *to, *bad, *from = json_find(text, text + bytes, key, &to, &bad);
    buffer      out = {0};
    buffer_add(&out, "", 0);
    if (from && json_unquote(from, to, &out)) return out.data;
    free(out.data);
    return NULL;
}

/* Reads a file of the folder, a JSON object; NULL if the folder has no such file. *why becomes NULL, or what is wrong with the
   file, with line and column. */
static char *read_json(const char *folder, const char *name, size_t *bytes, char **why)
{
    char *path = join_path(folder, name), *text = NULL;
    int   line = 1;
    *why = NULL;
    if (is_file(path)) {
        const char *to, *bad, *at;
        text = read_file(path, BY_NAME, bytes);
        json_find(text, text + *bytes, "", &to, &bad);
        const char *other = bad ? tn_foreign_format(text, *bytes) : NULL;
        if (other) *why = format_text("%s: the file is %s", path, other);
        for (at = text; bad && at < to; at++) line += *at == '\n';
        while (bad && at > text && at[-1] != '\n') at--;
        if (bad && !other) *why = format_text("%s: line %d, column %d: %s", path, line, (int)(to - at) + 1, bad);
    }
    free(path);
    return text;
}

/* Whether a name of the map, whose alternatives are separated by |, is this one. {l} stands for any number, which is
   stored in *block; where a name has no number, *block is -1. */
static bool names_tensor(const char *pattern, const char *name, int64_t *block)
{
    const char *at = name;
    *block = -1;
    for (;; pattern++) {
        if (*pattern == '|' || *pattern == 0) {
            if (*at == 0) return true;
            if (*pattern == 0) return false;
            at = name;
            *block = -1;
        } else if (!strncmp(pattern, "{l}", 3) && *at >= '0' && *at <= '9') {
            for (*block = 0; *at >= '0' && *at <= '9'; at++)
                if (*block < INT32_MAX) *block = *block * 10 + *at - '0';
            pattern += 2;
        } else if (*pattern == *at) at++;
        else {
            pattern += strcspn(pattern, "|");
            if (*pattern == 0) return false;
            at = name;
            *block = -1;
        }
    }
}

/* Buffers that follow from the config and that some files hold. */
static bool is_buffer(const char *name)
{
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq", ".attn.rotary.inv_freq"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t k = strlen(ends[i]);
        if (n > k && !strcmp(name + n - k, ends[i])) return true;
    }
    return false;
}

/* The tensor of a file that a line of the map gives to a parameter outside of the blocks; NULL: it has none under its names. */
static const char *tensor_of(const tn_safetensors *st, const tn_name_map *map, int64_t lines, const char *param)
{
    int64_t block;
    for (int64_t k = 0; k < lines; k++)
        for (int64_t i = 0; !strcmp(map[k].param, param) && i < tn_safetensors_count(st); i++)
            if (names_tensor(map[k].file, tn_safetensors_at(st, i)->name, &block)) return tn_safetensors_at(st, i)->name;
    return NULL;
}

/* transformers ties two tables only if the file has one of them, or both and they are equal. */
static void untie(tn_safetensors *st, const char *path, const tn_name_map *map, int64_t lines, tn_transformer_desc *desc)
{
    const char *table = tensor_of(st, map, lines, "embed.w"), *head = tensor_of(st, map, lines, "head.w");
    if (!desc->tied || !table || !head || tn_safetensors_equal(st, table, head)) return;
    desc->tied = false;
    warn("%s: %s differs from %s: they are not tied, although config.json says so", path, head, table);
}

/* The first models of bilinear-decomposition have norms with a bias, which is not trained and zero. */
static bool is_zero_bias(tn_safetensors *st, const tn_safetensors_entry *e)
{
    int64_t     at;
    const char *patterns = "transformer.h.{l}.n1.norm.bias|transformer.h.{l}.n2.norm.bias|transformer.n_f.norm.bias";
    tn_tensor  *t = names_tensor(patterns, e->name, &at) ? tn_safetensors_read(st, e->name) : NULL;
    double     *v = t ? numbers_in(t) : NULL;
    bool        zero = t != NULL;
    for (int64_t i = 0; t && i < tn_tensor_count(t); i++) zero = zero && v[i] == 0;
    free(v);
    tn_tensor_destroy(t);
    return zero;
}

/* Why a tensor has no place in the model: none in the map, or in a block that there is not, or of another number of heads. */
static char *without_place(tn_safetensors *st, const char *path, const tn_safetensors_entry *e, const tn_name_map *map,
                           int64_t lines, const tn_transformer_desc *desc, double kv_heads)
{
    int64_t k, block = -1;
    for (k = 0; k < lines && !names_tensor(map[k].file, e->name, &block); k++) {}
    if (k == lines && !is_buffer(e->name) && !is_zero_bias(st, e))
        return format_text("%s: tensor \"%s\" has no counterpart in a tn_transformer", path, e->name);
    if (ends_with(e->name, "k_proj.weight") && kv_heads * (double)desc->d_qk != (double)e->shape[0])
        return format_text("%s: tensor \"%s\" has %lld rows, expected %g heads of %lld, as num_key_value_heads is in "
                           "config.json", path, e->name, (long long)e->shape[0], kv_heads, (long long)desc->d_qk);
    if (k < lines && block >= desc->layers)
        return format_text("%s: tensor \"%s\" belongs to block %lld, expected less than %lld, the number of blocks in "
                           "config.json", path, e->name, (long long)block, (long long)desc->layers);
    return NULL;
}

/* Every tensor must have a place. This is known from the header, before there is memory for the model. Then tables that differ
   are untied. */
static char *check_tensors(tn_ctx *ctx, const char *path, const tn_name_map *map, int64_t lines, tn_transformer_desc *desc,
                           double kv_heads)
{
    tn_safetensors *st = tn_safetensors_open(ctx, tn_source_path(path));
    char           *why = taken_error(ctx);
    if (why) return why;
    for (int64_t i = 0; !why && i < tn_safetensors_count(st); i++)
        why = without_place(st, path, tn_safetensors_at(st, i), map, lines, desc, kv_heads);
    if (!why) why = size_refusal(desc, st, path, 2 * desc->heads);      /* heads share keys and values, encoders a matrix */
    if (!why) untie(st, path, map, lines, desc);
    if (!why) why = taken_error(ctx);
    tn_safetensors_close(st);
    return why;
}

/* What a file is instead of one of weights, or NULL. */
const char *file_format(const char *path)
{
    char   head[128];
    FILE  *f = is_file(path) ? fopen(path, "rb") : NULL;
    size_t n = f ? fread(head, 1, sizeof head, f) : 0;
    if (f) fclose(f);
    return tn_foreign_format(head, n);
}

/* Returns the path of a folder's weights, or NULL; then *why says which file was expected. */
static char *find_hf_weights(const char *folder, char **why)
{
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth",
                                         "model.bin", "tf_model.h5", "model.gguf"};
    for (int i = 0; i < 2; i++) if (folder_has(folder, names[i])) return join_path(folder, names[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!folder_has(folder, others[i])) continue;
        char       *path = join_path(folder, others[i]);
        const char *is = file_format(path);
        *why = is ? format_text("%s has %s and no model.safetensors. The file is %s", folder, others[i], is)
                  : format_text("%s has %s, expected model.safetensors: in Python, model.save_pretrained(...) writes it", folder,
                                others[i]);
        free(path);
        return NULL;
    }
    *why = format_text("%s has neither model.safetensors nor model.safetensors.index.json", folder);
    return NULL;
}

bool puts_token(const char *path)
{
    const char *to, *bad;
    size_t      bytes;
    char       *text = read_file(path, BY_NAME, &bytes);
    bool        puts = false;
    const char *at = json_find(text, text + bytes, "post_processor", &to, &bad);
    for (; at && at + 12 < to; at++) if (!strncmp(at, "SpecialToken", 12)) puts = true;
    free(text);
    return puts;
}

/* Reads a tokenizer, or that of the folder, if it has one. Returns NULL, or why it cannot be used: then the model has none. */
static char *read_hf_tokenizer(model *m, const char *folder, const char *given)
{
    static const char *const others[] = {"tokenizer.model", "vocab.json", "vocab.txt"};
    char *path = given ? copy_text(given) : join_path(folder, "tokenizer.json"), *why = NULL;
    if (given && !is_file(path)) why = format_text("%s is not a file, expected a tokenizer.json", given);
    for (size_t i = 0; !is_file(path) && !why && i < sizeof others / sizeof *others; i++)
        if (folder_has(folder, others[i]))
            why = format_text("%s has %s and no tokenizer.json, expected tokenizer.json", folder, others[i]);
    if (is_file(path) && (m->tokenizer = tn_tokenizer_load(m->ctx, path)) == NULL) why = taken_error(m->ctx);
    else if (is_file(path) && tn_tokenizer_count(m->tokenizer) > m->desc.vocab) {
        why = format_text("%s has %lld tokens, but the model has only %lld", path, (long long)tn_tokenizer_count(m->tokenizer),
                          (long long)m->desc.vocab);
        tn_tokenizer_destroy(m->tokenizer);
        m->tokenizer = NULL;
    }
    m->plain_prompt = m->tokenizer && !puts_token(path);
    free(path);
    return why;
}

/* Reads the ids of "eos_token_id", one or a list, in generation_config.json or else in the config. Those that the model does
   not have end no text, and are named. */
static char *read_stop_tokens(model *m, const char *folder, const char *config, size_t bytes)
{
    char       *why, *own = read_json(folder, "generation_config.json", &bytes, &why), *end;
    const char *text = own ? own : config, *name = own ? "generation_config.json" : "config.json", *to, *bad;
    const char *blanks = " \t\r\n";
    const char *at = why ? NULL : json_find(text, text + bytes, "eos_token_id", &to, &bad);
    bool        list = at && *at == '[';
    if (list) at += 1 + strspn(at + 1, blanks);
    while (at && !why && at < to && *at != ']' && (list || strncmp(at, "null", 4))) {
        errno = 0;
        long id = strtol(at, &end, 10);
        if (end == at || errno || (end < to && !strchr(list ? ",] \t\r\n" : blanks, *end)))
            why = format_text("%s/%s: eos_token_id is %.*s, expected an integer, a list of integers or null", folder, name,
                              to - at < 40 ? (int)(to - at) : 40, at);
        else if (id < 0 || id >= m->desc.vocab)
            warn("%s/%s: eos_token_id %ld is no token of the model, and ends no text", folder, name, id);
        else if (m->stop_count == STOP_TOKENS)
            why = format_text("%s/%s: eos_token_id has more than %d tokens", folder, name, STOP_TOKENS);
        else m->stop[m->stop_count++] = (int32_t)id;
        at = end + strspn(end, ", \t\r\n");
    }
    free(own);
    return why;
}

/* The config, whose text is `config`. That of bilinear-decomposition leaves the vocabulary to the tokenizer: it is the number of
   the embedding's rows, which the text then gets. */
static char *read_foreign_config(model *m, const char *path, const char *config, size_t bytes, const char *type,
                                 const char *file)
{
    tn_safetensors *st = strcmp(type, STORIES) ? NULL : tn_safetensors_open(m->ctx, tn_source_path(file));
    const tn_safetensors_entry *e = st ? tn_safetensors_find(st, "transformer.wte.weight") : NULL;
    buffer          whole = {0};
    char           *why = taken_error(m->ctx);
    const char     *rest = memchr(config, '{', bytes);
    if (e && isnan(json_number(config, config + bytes, "n_vocab")) && isnan(json_number(config, config + bytes, "vocab_size")))
        buffer_print(&whole, "{\"vocab_size\":%lld,", (long long)e->shape[0]);
    if (whole.bytes) rest++;
    buffer_add(&whole, rest, bytes - (size_t)(rest - config));
    tn_safetensors_close(st);
    tn_source source = tn_source_memory(whole.data, whole.bytes);
    source.name = path;
    if (!why) tn_transformer_config_read(m->ctx, source, &m->desc);
    free(whole.data);
    return why ? why : taken_error(m->ctx);
}

/* The weights, after the config is known. */
static char *read_hf_weights(model *m, const char *type, double kv_heads, const char *file)
{
    int64_t            lines;
    const tn_name_map *map = foreign_names(type, &lines);
    char *why = check_tensors(m->ctx, file, map, lines, &m->desc, isnan(kv_heads) ? (double)m->desc.heads : kv_heads);
    if (why) return why;
    m->params = tn_params_create(m->ctx);
    tn_transformer_init(m->params, "", &m->desc, &m->net);
    tn_transformer_read_mapped(m->params, &m->net, tn_source_path(file), map, lines);
    return taken_error(m->ctx);
}

/* The type of a config.json, a new string, or NULL. */
static char *type_of_config(const char *config, size_t bytes)
{
    const char *to, *bad, *end = config + bytes;
    char       *type = json_text(config, bytes, "model_type");
    const bool  kinds = (!type || !*type) && json_find(config, end, "bilinear", &to, &bad);
    const char *kind = !kinds ? NULL : json_find(config, end, "n_embd", &to, &bad) ? MODDED
                     : json_find(config, end, "d_model", &to, &bad) ? STORIES : NULL;
    if (type && (!*type || !strcmp(type, "tensornet"))) {
        free(type);
        type = NULL;
    }
    return kind ? copy_text(kind) : type;
}

char *foreign_type(const char *folder)
{
    size_t bytes;
    char  *why, *config = read_json(folder, "config.json", &bytes, &why);
    char  *type = config && !why ? type_of_config(config, bytes) : NULL;
    free(config);
    free(why);
    return type;
}

/* Why a config is of no model that can be imported. */
static char *unknown_type(const char *path, const char *config, size_t bytes)
{
    const char *to, *bad;
    if (json_find(config, config + bytes, "d_input", &to, &bad))
        return format_text("%s is of a network of bilinear layers, which is no language model: tn look shows its folder, and "
                           "tensornet.load reads it in Python", path);
    char *type = json_text(config, bytes, "model_type");
    bool  other = json_find(config, config + bytes, "model_type", &to, &bad);
    char *why = format_text("%s: model_type is %s, expected gpt2, llama, mistral, qwen2, qwen3, gemma, or the config of "
                            STORIES " or " MODDED, path, type ? type : other ? "not a string" : "missing");
    free(type);
    return why;
}

char *read_foreign(tn_ctx *ctx, model *m, const char *folder, const char *tokenizer, char **file, char **bad_tokenizer)
{
    size_t bytes = 0;
    char  *why, *path = join_path(folder, "config.json"), *config = read_json(folder, "config.json", &bytes, &why);
    char  *type = config && !why ? type_of_config(config, bytes) : NULL;
    memset(m, 0, sizeof *m);
    m->ctx = ctx;
    m->imported = true;
    *file = NULL;
    if (!config) why = format_text("%s is not a file, expected the config.json of a model", path);
    else if (!why && !type) why = unknown_type(path, config, bytes);
    if (!why) *file = find_hf_weights(folder, &why);
    if (!why) why = read_foreign_config(m, path, config, bytes, type, *file);
    if (!why) why = read_hf_weights(m, type, json_number(config, config + bytes, "num_key_value_heads"), *file);
    if (!why) why = read_stop_tokens(m, folder, config, bytes);
    if (bad_tokenizer) *bad_tokenizer = why ? NULL : read_hf_tokenizer(m, folder, tokenizer);
    if (why) {
        free(*file);
        *file = NULL;
    }
    free(type);
    free(config);
    free(path);
    return why;
}
