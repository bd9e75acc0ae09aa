/* exchange.c - tn import, tn export: models of other programs become runs, and runs become models of transformers */
#include "tn.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct weights_file {
    model             *m;
    const tn_name_map *map;
    int64_t            lines, kv_heads;
    const tn_metadata     *notes;
    int64_t            count;
} weights_file;

static tn_status put_own(void *user, tn_sink sink)
{
    const weights_file *w = (const weights_file *)user;
    return tn_params_write(w->m->params, sink, w->notes, w->count);
}

static tn_status put_mapped(void *user, tn_sink sink)
{
    const weights_file *w = (const weights_file *)user;
    return tn_transformer_write_mapped(w->m->params, &w->m->net, sink, w->map, w->lines, w->kv_heads, w->notes, w->count);
}

/* Writes the file NAME of a folder, and says so. */
static void write_weights(const char *folder, weights_file *w, writer_fn writer)
{
    char *path = join_path(folder, "model.safetensors"), *why = write_file_with(path, BY_NAME, writer, w, w->m->ctx);
    if (why) fail("%s", why);
    print("written: %s\n", path);
    free(path);
}

static void write_text(const char *folder, const char *name, const buffer *text)
{
    char *path = join_path(folder, name);
    write_file(path, text->data, text->bytes);
    print("written: %s\n", path);
    free(path);
}

/* ---- import ----------------------------------------------------------------------------------- */

static struct { const char *out, *tokenizer; bool no_tokenizer; } importing;

static option import_options[] = {
    TEXT_ROW("out", &importing.out, "RUN", "the folder to write, which tn generate, tn eval and tn export accept", NEVER),
    TEXT_ROW("tokenizer", &importing.tokenizer, "FILE", "a tokenizer.json; the default is the one of the folder", NEVER),
    FLAG_ROW("no-tokenizer", &importing.no_tokenizer, "leave out the tokenizer, where it is of another kind", NEVER),
};

const usage import_usage = {
    "import", "DIRECTORY --out RUN", "make a run of a model of another program",
    "Reads config.json, model.safetensors (or the files of model.safetensors.index.json) and tokenizer.json of GPT-2, Llama, "
    "Mistral, Qwen2, Qwen3 or Gemma of Hugging Face's transformers, and the transformers of github.com/tdooms/bilinear-decomposition and of "
    "github.com/loganriggs/modded-nanogpt.",
    "Whatever has no counterpart is an error that names it. Weights become 32-bit numbers.",
    import_options, sizeof import_options / sizeof *import_options, 1, NULL
};

/* The run in --out: weights with their notes, config.json, and tokenizer.json if there is one. */
static void write_import(model *m, weights_file *w, const char *type, const char *folder)
{
    char       *text = config_json(m);
    buffer      json = {0}, stop = {0};
    tn_metadata notes[4];
    make_folder(importing.out);
    buffer_add(&json, text, strlen(text));
    buffer_add(&stop, "", 0);
    for (int i = 0; i < m->stop_count; i++) buffer_print(&stop, i ? " %d" : "%d", (int)m->stop[i]);
    notes[0].key = "tn.model", notes[0].value = text;
    notes[1].key = "tn.import", notes[1].value = type;
    notes[2].key = "tn.bos", notes[2].value = m->plain_prompt ? "none" : "first";
    notes[3].key = "tn.stop", notes[3].value = stop.data;
    w->m = m;
    w->notes = notes;
    w->count = 4;
    write_weights(importing.out, w, put_own);
    write_text(importing.out, "config.json", &json);
    if (m->tokenizer) {
        char *path = join_path(importing.out, "tokenizer.json");
        save_tokenizer(path, BY_NAME, m->tokenizer, m->ctx);
        print("written: %s\n", path);
        free(path);
    } else warn("%s has no tokenizer.json: tn generate needs --ids or --tokenizer", folder);
    free(stop.data);
    free(json.data);
    free(text);
}

int import_main(int argc, char **argv)
{
    const int    arguments = read_options(&import_usage, argc, argv);
    const char  *folder = arguments ? argv[0] : NULL;
    char        *file, *bad = NULL;
    model        m;
    weights_file w;
    if (!folder) usage_error("no model is given, expected tn import DIRECTORY --out RUN");
    if (!importing.out) usage_error("no --out is given, expected tn import DIRECTORY --out RUN");
    if (importing.tokenizer && importing.no_tokenizer) usage_error("--tokenizer and --no-tokenizer are given, expected one");
    const char *is = file_format(folder);
    if (is) fail("%s is not a folder, expected one with config.json and model.safetensors. The file is %s", folder, is);
    if (!is_folder(folder)) fail("%s is not a folder, expected one with config.json and model.safetensors", folder);
    check_new_folder("--out", importing.out);
    memset(&w, 0, sizeof w);
    char *why = read_foreign(new_context(), &m, folder, importing.tokenizer, &file, importing.no_tokenizer ? NULL : &bad);
    char *type = foreign_type(folder);
    if (why) fail("%s", why);
    if (bad) fail("%s; --no-tokenizer imports the weights alone", bad);
    print("model: %s, %lld layers, width %lld, %lld parameters, vocabulary %lld\n", type, (long long)m.desc.layers,
          (long long)m.desc.dim, (long long)tn_params_elements(m.params), (long long)m.desc.vocab);
    write_import(&m, &w, type, folder);
    free(file);
    free(type);
    close_model(&m);
    return 0;
}

/* ---- export ------------------------------------------------------------------------------------ */

static struct { const char *out, *tokenizer; } exporting;

static option export_options[] = {
    TEXT_ROW("out", &exporting.out, "DIRECTORY", "the folder to write, for from_pretrained", NEVER),
    TEXT_ROW("tokenizer", &exporting.tokenizer, "FILE", "a tokenizer.json; the default is the one beside the weights",
             NEVER),
};

const usage export_usage = {
    "export", "RUN|CHECKPOINT --out DIRECTORY", "write a model for Hugging Face's transformers",
    "Writes config.json, model.safetensors, tokenizer.json and tokenizer_config.json of a model that GPT-2, Llama, Mistral, "
    "Qwen2 or Qwen3 computes equally.",
    "A Llama needs softmax attention, RoPE, RMS norms before attention and MLP, and an MLP with a gate: tn train --mlp "
    "swiglu --no-qk-norm --no-embed-norm, with or without --gain, --bias, --window. A GPT-2 needs --norm layer, --positions "
    "learned and an MLP without a gate instead. Export names any part that has no equivalent.",
    export_options, sizeof export_options / sizeof *export_options, 1, NULL
};

/* How transformers spells the activation of an MLP; NULL: it has none of this kind. gated: as the gate of a Llama's. */
static const char *activation_word(tn_mlp_kind kind, bool gated)
{
    static const struct { tn_mlp_kind kind; bool gated; const char *word; } words[] = {
        {TN_MLP_SWIGLU, true, "silu"}, {TN_MLP_GEGLU, true, "gelu"}, {TN_MLP_REGLU, true, "relu"},
        {TN_MLP_GLU, true, "sigmoid"}, {TN_MLP_BILINEAR, true, "linear"}, {TN_MLP_GELU_TANH, false, "gelu_new"},
        {TN_MLP_GEGLU_TANH, true, "gelu_pytorch_tanh"},
        {TN_MLP_GELU, false, "gelu"},
        {TN_MLP_RELU, false, "relu"}, {TN_MLP_RELU2, false, "relu2"}, {TN_MLP_SWISH, false, "silu"}
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].kind == kind && words[i].gated == gated) return words[i].word;
    return NULL;
}

/* What transformers has no setting for. */
static const char *obstacle(const tn_transformer_desc *d, bool gpt2)
{
    const bool scaled = d->score_scale != 0 && d->score_scale != 1 / sqrt((double)d->d_qk);
    const struct { bool is; const char *what; } bad[] = {
        {d->attention_count > 0 || d->mlp_count > 0 || d->window_count > 0, "blocks that differ"},
        {d->attention != TN_ATTENTION_SOFTMAX, "attention other than softmax"},
        {d->bidirectional, "attention that is not causal"},
        {d->qk_norm && gpt2, "QK-norm together with learned positions (tn train --no-qk-norm is without)"},
        {d->qk_norm && d->qk_norm_eps != d->norm_eps,
         "QK-norm that adds another eps than the other norms (tn train --no-qk-norm is without)"},
        {d->qk_norm && (d->mlp_bias || d->mlp_out_bias), "QK-norm together with biases of MLPs"},
        {d->head_norm, "head norms"},
        {scaled, "a score scale of its own"},
        {d->d_qk != d->d_v, "heads whose values are longer or shorter than their queries"},
        {d->no_norm, "no norms"},
        {d->norm_place != TN_PLACE_PRE, "norms in other places than before attention and MLP"},
        {d->embed_norm, "a norm of the embedding (tn train --no-embed-norm is without)"},
        {d->attn_scale != 1 || d->mlp_scale != 1, "scaled branches"},
        {d->x0_residual, "x0 residuals"},
        {d->value_residual, "value residuals"},
        {d->softcap != 0, "a soft-cap of the logits"},
        {d->no_projection, "MLPs without an output projection"},
        {d->mlp_order != 0 && d->mlp_order != 2, "MLPs whose number of encoders is not two (tn train --order 2 has two)"},
        {gpt2 && d->positions != TN_POSITIONS_LEARNED, "a layer norm without learned positions"},
        {gpt2 && d->norm != TN_NORM_LAYER, "learned positions without a layer norm"},
        {gpt2 && d->window != 0, "a window together with learned positions"},
        {gpt2 && d->d_qk * d->heads != d->dim, "heads that are not width/heads long, together with learned positions"},
        {!gpt2 && d->positions != TN_POSITIONS_ROPE, "RMS norms without RoPE"},
        {!gpt2 && d->d_qk % 2 != 0, "heads of odd length"},
        {!gpt2 && d->window && (d->attn_out_bias || d->mlp_bias || d->mlp_out_bias), "a window together with these biases"},
        {!activation_word(d->mlp, !gpt2), gpt2 ? "this MLP together with learned positions" : "this MLP together with RoPE"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) if (bad[i].is) return bad[i].what;
    return NULL;
}

/* The model_type, and the desc with the gains and biases that such a model always has. */
static const char *complete_desc(tn_transformer_desc *d)
{
    d->no_norm_gain = false;
    if (d->norm == TN_NORM_LAYER || d->positions == TN_POSITIONS_LEARNED) {
        d->norm_bias = d->attn_bias = d->attn_out_bias = d->mlp_bias = d->mlp_out_bias = true;
        return "gpt2";
    }
    if (d->qk_norm) {
        d->attn_bias = d->attn_out_bias = d->attn_bias || d->attn_out_bias;
        d->qk_gain = true;
        return "qwen3";
    }
    if (d->attn_bias && !d->attn_out_bias && !d->mlp_bias && !d->mlp_out_bias) return "qwen2";
    if (d->window) return "mistral";
    d->attn_bias = d->attn_out_bias = d->attn_bias || d->attn_out_bias;
    d->mlp_bias = d->mlp_out_bias = d->mlp_bias || d->mlp_out_bias;
    return "llama";
}

/* A decimal with a point, as Python writes a float. */
static const char *float_text(double v, char text[40])
{
    decimal_text(v, text, 40 - 2);
    if (!strpbrk(text, ".e")) strcat(text, ".0");
    return text;
}

static void print_key(buffer *b, const char *key, const char *format, int64_t v)
{
    buffer_print(b, "  \"%s\": ", key);
    buffer_print(b, format, (long long)v);
    buffer_print(b, ",\n");
}

static void print_gpt2(buffer *b, const tn_transformer_desc *d)
{
    char number[40];
    print_key(b, "n_layer", "%lld", d->layers);
    print_key(b, "n_head", "%lld", d->heads);
    print_key(b, "n_embd", "%lld", d->dim);
    print_key(b, "n_positions", "%lld", d->context);
    print_key(b, "n_inner", "%lld", d->hidden);
    buffer_print(b, "  \"activation_function\": \"%s\",\n", activation_word(d->mlp, false));
    buffer_print(b, "  \"layer_norm_epsilon\": %s,\n", float_text(d->norm_eps, number));
    buffer_print(b, "  \"attn_pdrop\": 0.0,\n  \"embd_pdrop\": 0.0,\n  \"resid_pdrop\": 0.0,\n");
}

static void print_llama(buffer *b, const tn_transformer_desc *d, const char *type, int64_t kv_heads)
{
    const tn_rope_scaling *r = &d->rope_scaling;
    char base[40], number[40], low[40], high[40];
    print_key(b, "num_hidden_layers", "%lld", d->layers);
    print_key(b, "num_attention_heads", "%lld", d->heads);
    print_key(b, "num_key_value_heads", "%lld", kv_heads);
    print_key(b, "hidden_size", "%lld", d->dim);
    print_key(b, "head_dim", "%lld", d->d_qk);
    print_key(b, "intermediate_size", "%lld", d->hidden);
    print_key(b, "max_position_embeddings", "%lld", d->context);
    buffer_print(b, "  \"hidden_act\": \"%s\",\n", activation_word(d->mlp, true));
    buffer_print(b, "  \"rms_norm_eps\": %s,\n", float_text(d->norm_eps, number));
    buffer_print(b, "  \"rope_theta\": %s,\n", float_text(d->rope_base, base));
    if (r->factor == 0) buffer_print(b, "  \"rope_scaling\": null,\n");
    else if (r->context == 0)
        buffer_print(b, "  \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": %s},\n",
                     float_text(r->factor, number));
    else
        buffer_print(b, "  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": %s, \"low_freq_factor\": %s, "
                     "\"high_freq_factor\": %s, \"original_max_position_embeddings\": %.0f},\n",
                     float_text(r->factor, number), float_text(r->low, low), float_text(r->high, high), r->context);
    if (!strcmp(type, "llama"))
        buffer_print(b, "  \"attention_bias\": %s,\n  \"mlp_bias\": %s,\n", d->attn_bias ? "true" : "false",
                     d->mlp_bias ? "true" : "false");
    if (!strcmp(type, "qwen3")) buffer_print(b, "  \"attention_bias\": %s,\n", d->attn_bias ? "true" : "false");
    if (!strcmp(type, "mistral")) print_key(b, "sliding_window", "%lld", d->window);
    if (!strncmp(type, "qwen", 4)) {
        buffer_print(b, "  \"use_sliding_window\": %s,\n", d->window ? "true" : "false");
        print_key(b, "sliding_window", "%lld", d->window ? d->window : d->context);
        print_key(b, "max_window_layers", "%lld", d->window ? 0 : d->layers);
    }
}

static void print_config(buffer *b, const tn_transformer_desc *d, const char *type, int64_t kv_heads, const model *m)
{
    static const struct { const char *type, *name; } classes[] = {
        {"gpt2", "GPT2LMHeadModel"}, {"llama", "LlamaForCausalLM"}, {"mistral", "MistralForCausalLM"},
        {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}
    };
    const int64_t bos = tn_tokenizer_bos(m->tokenizer), eos = tn_tokenizer_eos(m->tokenizer);
    size_t        i;
    for (i = 0; strcmp(classes[i].type, type); i++) {}
    buffer_print(b, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n", classes[i].name, type);
    if (!strcmp(type, "gpt2")) print_gpt2(b, d);
    else print_llama(b, d, type, kv_heads);
    buffer_print(b, bos >= 0 ? "  \"bos_token_id\": %lld,\n" : "  \"bos_token_id\": null,\n", (long long)bos);
    if (m->stop_count > 0) {
        for (int k = 0; k < m->stop_count; k++) buffer_print(b, k ? ", %d" : "  \"eos_token_id\": [%d", (int)m->stop[k]);
        buffer_print(b, "],\n");
    } else buffer_print(b, eos >= 0 ? "  \"eos_token_id\": %lld,\n" : "  \"eos_token_id\": null,\n", (long long)eos);
    buffer_print(b, "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"float32\",\n  \"vocab_size\": %lld\n}\n",
                 d->tied ? "true" : "false", (long long)d->vocab);
}

/* The tokenizer of bytes as BPE without merges: each byte is a letter, and a token. */
static void print_byte_tokenizer(buffer *b, const tn_tokenizer *t)
{
    buffer_print(b, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [");
    for (int i = 256; i < 258; i++)
        buffer_print(b, "%s\n    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
                     "\"rstrip\": false, \"normalized\": false, \"special\": true}", i > 256 ? "," : "", i,
                     tn_tokenizer_token(t, i));
    buffer_print(b, "\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                 "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false},\n  \"post_processor\": null,\n"
                 "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
                 "\"use_regex\": true},\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n"
                 "    \"unk_token\": null,\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
                 "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {");
    for (int i = 0; i < 256; i++) {
        const int letter = i < 33 ? 256 + i : i >= 127 && i <= 160 ? 289 + i - 127 : i == 173 ? 323 : i;
        buffer_print(b, "%s\n      \"\\u%04x\": %d", i > 0 ? "," : "", (unsigned)letter, i);
    }
    buffer_print(b, "\n    },\n    \"merges\": []\n  }\n}\n");
}

static void write_tokenizer(const char *folder, const model *m)
{
    const tn_tokenizer *t = m->tokenizer;
    const int64_t       special[2] = {tn_tokenizer_bos(t), tn_tokenizer_eos(t)};
    char               *path = join_path(folder, "tokenizer.json");
    buffer              b = {0};
    if (tn_tokenizer_is_bytes(t)) {
        print_byte_tokenizer(&b, t);
        write_file(path, b.data, b.bytes);
        b.bytes = 0;
    } else save_tokenizer(path, BY_NAME, m->tokenizer, m->ctx);
    print("written: %s\n", path);
    if (m->start_count && puts_token(path))
        warn("%s puts %s before a text, which the model has not learned: in Python, give the tokenizer add_special_tokens=False",
             path, tn_tokenizer_token(t, special[0]));
    buffer_print(&b, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n");
    for (int i = 0; i < 2; i++) {
        const char *name = special[i] >= 0 ? tn_tokenizer_token(t, special[i]) : NULL;
        if (!name) continue;
        buffer_print(&b, "  \"%s\": ", i ? "eos_token" : "bos_token");
        json_quote(&b, name, strlen(name));
        buffer_print(&b, ",\n");
    }
    buffer_print(&b, "  \"clean_up_tokenization_spaces\": false,\n  \"model_max_length\": %lld\n}\n",
                 (long long)m->desc.context);
    write_text(folder, "tokenizer_config.json", &b);
    free(b.data);
    free(path);
}

/* The same model with the gains and biases of `desc`: 1 and 0 where it has none. */
static void complete_model(const model *m, const tn_transformer_desc *desc, model *full)
{
    *full = *m;
    full->desc = *desc;
    full->params = tn_params_create(m->ctx);
    tn_transformer_init(full->params, "", desc, &full->net);
    check_ctx(m->ctx, "the model");
    for (int64_t i = 0; i < tn_params_count(full->params); i++) {
        const tn_param *to = tn_params_at(full->params, i), *from = tn_params_find(m->params, to->name);
        const int64_t   n = tn_tensor_count(to->value);
        double         *host = (double *)allocate((size_t)n, sizeof *host);
        size_t          length = strlen(to->name);
        for (int64_t k = 0; !from && length > 4 && !strcmp(to->name + length - 4, "gain") && k < n; k++) host[k] = 1;
        if (from) tn_read(from->value, TN_F64, host, n);
        tn_write(to->value, TN_F64, host, n);
        free(host);
    }
    check_ctx(m->ctx, "the model");
}

int export_main(int argc, char **argv)
{
    const int    arguments = read_options(&export_usage, argc, argv);
    static const tn_metadata note = {"format", "pt"};
    tn_desc      ctx_desc;
    model        m, full;
    weights_file w;
    buffer       config = {0};
    memset(&ctx_desc, 0, sizeof ctx_desc);
    ctx_desc.log = show_log;
    memset(&w, 0, sizeof w);
    if (!arguments) usage_error("no model is given, expected tn export RUN --out DIRECTORY");
    if (!exporting.out) usage_error("no --out is given, expected tn export RUN --out DIRECTORY");
    check_new_folder("--out", exporting.out);
    open_model(&m, argv[0], exporting.tokenizer, &ctx_desc, NULL);
    tn_transformer_desc desc = m.desc;
    const char         *bad = obstacle(&desc, desc.norm == TN_NORM_LAYER || desc.positions == TN_POSITIONS_LEARNED);
    if (bad)
        fail("%s: the model has %s, which none of the supported models of transformers has (tn export --help)", argv[0],
             bad);
    const char *type = complete_desc(&desc);
    complete_model(&m, &desc, &full);
    w.m = &full;
    w.map = foreign_names(type, &w.lines);
    w.kv_heads = strcmp(type, "gpt2") ? tn_transformer_kv_heads(&full.net) : desc.heads;
    w.notes = &note;
    w.count = 1;
    make_folder(exporting.out);
    write_weights(exporting.out, &w, put_mapped);
    if (m.tokenizer) write_tokenizer(exporting.out, &m);
    print_config(&config, &desc, type, w.kv_heads, &m);
    write_text(exporting.out, "config.json", &config);
    free(config.data);
    close_model(&m);
    return 0;
}
