#include "core/inner.h"
#include "ops/ops.h"
#include "layers/inner.h"
#include "io/inner.h"
#include "models/inner.h"

#ifndef TN_NO_MODELS
/* ---- config.json -------------------------------------------------------- >>model-config-impl
   One flat object. A table of keys gives the place of each value in the desc; "model_type" selects the table. Writing and
   comparing use the first one. */

typedef struct tni_choice { const char *word; int value; } tni_choice;          /* ends with {NULL, 0} */

typedef enum tni_key_kind { TNI_KEY_INT, TNI_KEY_REAL, TNI_KEY_BOOL, TNI_KEY_WORD, TNI_KEY_MUST, TNI_KEY_NOT } tni_key_kind;
typedef struct tni_key {
    const char     *name;
    tni_key_kind    kind;
    bool            required;
    size_t          offset, bytes;      /* in the desc; 0 bytes: it is not kept. TNI_KEY_MUST: `low` is the one value */
    double          low, high;          /* the valid range */
    const tni_choice *words;
    size_t          cycle, count;       /* where an array of such values is kept, and its length; 0: none is valid */
} tni_key;

#define TNI_FIELD(f) offsetof(tn_transformer_desc, f), sizeof(((tn_transformer_desc *)0)->f)
#define TNI_INT(name, required, field, low)  {name, TNI_KEY_INT, required, TNI_FIELD(field), low, 2147483646.0, NULL, 0, 0}
#define TNI_NUMBER(name, field, low)         {name, TNI_KEY_REAL, false, TNI_FIELD(field), low, 1e30, NULL, 0, 0}
#define TNI_FLAG(name, field)                {name, TNI_KEY_BOOL, false, TNI_FIELD(field), 0, 1, NULL, 0, 0}
#define TNI_NOT(name, field)                 {name, TNI_KEY_NOT, false, TNI_FIELD(field), 0, 1, NULL, 0, 0}
#define TNI_CHOICE(name, field, words)       {name, TNI_KEY_WORD, false, TNI_FIELD(field), 0, 0, words, 0, 0}
#define TNI_MUST(name, value)                {name, TNI_KEY_MUST, false, 0, 0, value, value, NULL, 0, 0}
#define TNI_SEEN(name)                       {name, TNI_KEY_BOOL, false, 0, 0, 0, 1, NULL, 0, 0}    /* for tni_config_yes */
#define TNI_ONE(name)                        {name, TNI_KEY_REAL, false, 0, 0, 1, 1, NULL, 0, 0}
#define TNI_CYCLE(field) \
    offsetof(tn_transformer_desc, field##_cycle), offsetof(tn_transformer_desc, field##_count)
#define TNI_CHOICES(name, field, words)      {name, TNI_KEY_WORD, false, TNI_FIELD(field), 0, 0, words, TNI_CYCLE(field)}
#define TNI_INTS(name, field, low) \
    {name, TNI_KEY_INT, false, TNI_FIELD(field), low, 2147483646.0, NULL, TNI_CYCLE(field)}

#define TNI_MLP_WORD(kind, name, encoders, act)                       {name, TN_MLP_##kind},
#define TNI_ATTENTION_WORD(kind, name, attend, sets, differential)    {name, TN_ATTENTION_##kind},
static const tni_choice tni_mlp_words[]  = { TNI_MLP_LIST(TNI_MLP_WORD) {NULL, 0} };
static const tni_choice tni_attn_words[] = { TNI_ATTENTION_LIST(TNI_ATTENTION_WORD) {NULL, 0} };
#undef TNI_MLP_WORD
#undef TNI_ATTENTION_WORD
static const tni_choice tni_form_words[] = {
    {"auto", TN_ATTEND_FORM_AUTO}, {"quadratic", TN_ATTEND_FORM_QUADRATIC}, {"linear", TN_ATTEND_FORM_LINEAR}, {NULL, 0}
};
static const tni_choice tni_row_words[] = {
    {"default", TN_ROW_SCALE_DEFAULT}, {"none", TN_ROW_SCALE_NONE}, {"length", TN_ROW_SCALE_LENGTH},
    {"mean", TN_ROW_SCALE_MEAN}, {"sum", TN_ROW_SCALE_SUM}, {NULL, 0}
};
static const tni_choice tni_position_words[] = {
    {"rope", TN_POSITIONS_ROPE}, {"learned", TN_POSITIONS_LEARNED}, {"none", TN_POSITIONS_NONE}, {NULL, 0}
};
static const tni_choice tni_norm_words[] = { {"rms", TN_NORM_RMS}, {"layer", TN_NORM_LAYER}, {NULL, 0} };
static const tni_choice tni_place_words[] = {
    {"pre", TN_PLACE_PRE}, {"post", TN_PLACE_POST}, {"sandwich", TN_PLACE_SANDWICH}, {NULL, 0}
};
static const tni_choice tni_init_words[] = {
    {"gpt2", TN_INIT_DEFAULT}, {"zero", TN_INIT_ZERO}, {"one", TN_INIT_ONE}, {"normal", TN_INIT_NORMAL},
    {"uniform", TN_INIT_UNIFORM}, {"glorot", TN_INIT_GLOROT}, {"he", TN_INIT_HE}, {NULL, 0}
};

static const tni_key tni_config_keys[] = {
    TNI_INT("n_vocab", true, vocab, 1), TNI_INT("n_layer", true, layers, 1), TNI_INT("n_head", true, heads, 1),
    TNI_INT("n_ctx", true, context, 1), TNI_INT("d_model", true, dim, 1), TNI_INT("d_hidden", false, hidden, 1),
    TNI_CHOICES("mlp", mlp, tni_mlp_words), TNI_INT("mlp_order", false, mlp_order, 0), TNI_FLAG("mlp_bias", mlp_bias),
    TNI_FLAG("mlp_out_bias", mlp_out_bias), TNI_FLAG("no_projection", no_projection),
    TNI_CHOICES("attention", attention, tni_attn_words), TNI_CHOICE("form", form, tni_form_words),
    TNI_INT("d_qk", false, d_qk, 1), TNI_INT("d_v", false, d_v, 1), TNI_INTS("window", window, 0),
    TNI_FLAG("not_causal", bidirectional), TNI_FLAG("qk_norm", qk_norm), TNI_FLAG("head_norm", head_norm),
    TNI_NUMBER("qk_norm_eps", qk_norm_eps, 0), TNI_FLAG("qk_gain", qk_gain),
    TNI_CHOICE("row_scale", row_scale, tni_row_words), TNI_INT("row_length", false, row_length, 1),
    TNI_NUMBER("score_scale", score_scale, 0), TNI_NUMBER("lambda_init", lambda_init, 0), TNI_FLAG("attn_bias", attn_bias),
    TNI_FLAG("attn_out_bias", attn_out_bias), TNI_CHOICE("positions", positions, tni_position_words),
    TNI_NUMBER("rope_base", rope_base, 0), TNI_NUMBER("rope_factor", rope_scaling.factor, 0),
    TNI_NUMBER("rope_low", rope_scaling.low, 0), TNI_NUMBER("rope_high", rope_scaling.high, 0),
    TNI_NUMBER("rope_context", rope_scaling.context, 0), TNI_CHOICE("norm", norm, tni_norm_words),
    TNI_CHOICE("norm_place", norm_place, tni_place_words), TNI_FLAG("no_norm", no_norm), TNI_FLAG("no_norm_gain", no_norm_gain),
    TNI_NOT("no_norm_bias", norm_bias), TNI_FLAG("embed_norm", embed_norm), TNI_NUMBER("norm_eps", norm_eps, 0),
    TNI_NUMBER("attn_scale", attn_scale, -1), TNI_NUMBER("mlp_scale", mlp_scale, -1), TNI_FLAG("x0_residual", x0_residual),
    TNI_FLAG("value_residual", value_residual), TNI_FLAG("tied", tied), TNI_NUMBER("softcap", softcap, 0),
    TNI_CHOICE("init", init, tni_init_words), TNI_NUMBER("init_std", init_std, 0), TNI_NUMBER("embed_std", embed_std, 0),
    TNI_FLAG("zero_out", zero_out), TNI_FLAG("zero_head", zero_head)
};

/* https://huggingface.co/docs/transformers/model_doc/gpt2, and llama: the keys that change what is computed. */
static const tni_choice tni_gpt2_acts[] = {
    {"gelu_new", TN_MLP_GELU_TANH}, {"gelu_pytorch_tanh", TN_MLP_GELU_TANH}, {"gelu_fast", TN_MLP_GELU_TANH},
    {"gelu", TN_MLP_GELU}, {"relu", TN_MLP_RELU}, {"relu2", TN_MLP_RELU2}, {"silu", TN_MLP_SWISH}, {"swish", TN_MLP_SWISH},
    {NULL, 0}
};
static const tni_choice tni_llama_acts[] = {
    {"silu", TN_MLP_SWIGLU}, {"swish", TN_MLP_SWIGLU}, {"gelu", TN_MLP_GEGLU}, {"relu", TN_MLP_REGLU},
    {"sigmoid", TN_MLP_GLU}, {"linear", TN_MLP_BILINEAR}, {"gelu_pytorch_tanh", TN_MLP_GEGLU_TANH},
    {"gelu_new", TN_MLP_GEGLU_TANH}, {NULL, 0}
};
static const tni_key tni_gpt2_keys[] = {
    TNI_INT("vocab_size", true, vocab, 1), TNI_INT("n_layer", true, layers, 1), TNI_INT("n_head", true, heads, 1),
    TNI_INT("n_positions", true, context, 1), TNI_INT("n_embd", true, dim, 1), TNI_INT("n_inner", false, hidden, 1),
    TNI_CHOICE("activation_function", mlp, tni_gpt2_acts), TNI_NUMBER("layer_norm_epsilon", norm_eps, 0),
    TNI_FLAG("tie_word_embeddings", tied), TNI_MUST("is_causal", true), TNI_MUST("scale_attn_weights", true),
    TNI_MUST("scale_attn_by_inverse_layer_idx", false), TNI_MUST("add_cross_attention", false)
};
static const tni_key tni_rope_keys[] = {                /* of "rope_scaling", and of "rope_parameters" in transformers 5 */
    TNI_NUMBER("rope_theta", rope_base, 0), TNI_ONE("partial_rotary_factor"), TNI_NUMBER("factor", rope_scaling.factor, 1),
    TNI_NUMBER("low_freq_factor", rope_scaling.low, 0), TNI_NUMBER("high_freq_factor", rope_scaling.high, 0),
    TNI_NUMBER("original_max_position_embeddings", rope_scaling.context, 1)
};
#define TNI_LLAMA_KEYS(acts) \
    TNI_INT("vocab_size", true, vocab, 1), TNI_INT("num_hidden_layers", true, layers, 1), \
    TNI_INT("num_attention_heads", true, heads, 1), TNI_INT("max_position_embeddings", true, context, 1), \
    TNI_INT("hidden_size", true, dim, 1), TNI_INT("intermediate_size", true, hidden, 1), TNI_INT("head_dim", false, d_qk, 1), \
    TNI_CHOICE("hidden_act", mlp, acts), TNI_NUMBER("rms_norm_eps", norm_eps, 0), \
    TNI_NUMBER("rope_theta", rope_base, 0), TNI_ONE("partial_rotary_factor"), TNI_FLAG("tie_word_embeddings", tied), \
    TNI_FLAG("attention_bias", attn_bias), TNI_MUST("is_causal", true)
static const tni_key tni_llama_keys[] = { TNI_LLAMA_KEYS(tni_llama_acts), TNI_FLAG("mlp_bias", mlp_bias) };
/* The first configs of Gemma have hidden_act alone, say gelu and mean its tanh form. */
static const tni_choice tni_gemma_acts[] = {{"gelu_pytorch_tanh", TN_MLP_GEGLU_TANH}, {"gelu", TN_MLP_GEGLU_TANH}, {NULL, 0}};
static const tni_choice tni_gemma_exact[] = {{"gelu_pytorch_tanh", TN_MLP_GEGLU_TANH}, {"gelu", TN_MLP_GEGLU}, {NULL, 0}};
static const tni_key tni_gemma_keys[] = {
    TNI_CHOICE("hidden_activation", mlp, tni_gemma_exact), TNI_LLAMA_KEYS(tni_gemma_acts)
};
#undef TNI_LLAMA_KEYS
/* Of the transformers of github.com/tdooms/bilinear-decomposition, and of github.com/loganriggs/modded-nanogpt. */
static const tni_key tni_bilinear_keys[] = {
    TNI_INT("vocab_size", false, vocab, 1), TNI_INT("n_vocab", false, vocab, 1), TNI_INT("n_layer", true, layers, 1),
    TNI_INT("n_head", true, heads, 1), TNI_INT("n_ctx", true, context, 1), TNI_INT("d_model", true, dim, 1),
    TNI_INT("d_hidden", true, hidden, 1), TNI_NOT("normalization", no_norm), TNI_FLAG("bias", mlp_bias),
    TNI_FLAG("tie_word_embeddings", tied), TNI_SEEN("bilinear")
};
static const tni_key tni_modded_keys[] = {
    TNI_INT("vocab_size", true, vocab, 1), TNI_INT("n_layer", true, layers, 1), TNI_INT("n_head", true, heads, 1),
    TNI_INT("n_embd", true, dim, 1), TNI_INT("expansion_factor", false, hidden, 1), TNI_SEEN("bilinear"), TNI_SEEN("gated"),
    TNI_SEEN("squared_mlp"), TNI_SEEN("squared_attn"), TNI_SEEN("bilinear_attn")
};
#define TNI_KEYS(table) (table), (sizeof(table) / sizeof *(table))

static const tni_key *tni_key_find(const tni_key *keys, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) if (strcmp(keys[i].name, name) == 0) return &keys[i];
    return NULL;
}

/* The size of an enum depends on the compiler. */
static int tni_word_get(const void *at, size_t bytes)
{
    uint64_t v = 0;
    if (bytes == 1) { uint8_t b; memcpy(&b, at, 1); v = b; }
    else if (bytes == 2) { uint16_t b; memcpy(&b, at, 2); v = b; }
    else { uint32_t b; memcpy(&b, at, 4); v = b; }
    return (int)v;
}

static void tni_word_set(void *at, size_t bytes, int value)
{
    const uint8_t  one = (uint8_t)value;
    const uint16_t two = (uint16_t)value;
    const uint32_t four = (uint32_t)value;
    memcpy(at, bytes == 1 ? (const void *)&one : bytes == 2 ? (const void *)&two : (const void *)&four, bytes);
}

static tn_status tni_key_fail(const tni_json *j, const tni_value *v, const tni_key *k, const char *must)
{
    static const char *const words[] = {"null", "false", "true", "", "", "a list", "an object"};
    char   got[80];
    tni_print(got, sizeof got, "%s", words[v->kind]);
    if (v->kind == TNI_JSON_STRING) tni_print(got, sizeof got, "%s", tni_quote(j->scan.text + v->string).s);
    if (v->kind == TNI_JSON_NUMBER) {
        double number;
        tni_parse_double(j->scan.text + v->at, j->scan.bytes - v->at, &number);
        tni_format_double(got, number, 15);
    }
    return tni_reader_fail(&j->file, TN_ERR_FORMAT, v->at, "%s is %s, expected %s", k->name, got, must);
}

static tn_status tni_key_number(const tni_json *j, const tni_value *v, const tni_key *k, void *at)
{
    const bool integer = k->kind == TNI_KEY_INT;
    double     number = (double)NAN;
    char       must[80];
    if (v->kind == TNI_JSON_NUMBER) tni_parse_double(j->scan.text + v->at, j->scan.bytes - v->at, &number);
    if (number >= k->low && number <= k->high && (!integer || number == floor(number))) {
        int64_t n = integer ? (int64_t)number : 0;
        if (integer) memcpy(at, &n, sizeof n);
        else memcpy(at, &number, k->bytes);
        return TN_OK;
    }
    if (k->low == k->high) tni_print(must, sizeof must, "%lld: no other value is supported", (long long)k->low);
    else tni_print(must, sizeof must, "%s from %lld to %s", integer ? "an integer" : "a number", (long long)k->low,
                   integer ? "2147483646" : "1e30");
    return tni_key_fail(j, v, k, must);
}

static tn_status tni_key_word(const tni_json *j, const tni_value *v, const tni_key *k, void *at)
{
    char   must[160];
    size_t used = 0;
    for (const tni_choice *w = k->words; w->word; w++) {
        if (v->kind == TNI_JSON_STRING && strcmp(j->scan.text + v->string, w->word) == 0) {
            tni_word_set(at, k->bytes, w->value);
            return TN_OK;
        }
        used += tni_print(must + used, sizeof must - used, "%s%s", w == k->words ? "" : w[1].word ? ", " : " or ", w->word);
    }
    return tni_key_fail(j, v, k, must);
}

static tn_status tni_key_take(const tni_json *j, const tni_value *v, const tni_key *k, tn_transformer_desc *d);

/* An array of values of one key: a cycle. */
static tn_status tni_key_array(const tni_json *j, const tni_value *v, const tni_key *k, tn_transformer_desc *d)
{
    tni_key   one = *k;
    int64_t   n = 0;
    tn_status s = TN_OK;
    one.count = 0;
    for (const tni_value *item = tni_json_child(j, v); item && s == TN_OK; item = tni_json_next(j, item), n++) {
        if (n == TN_MAX_CYCLE)
            return tni_reader_fail(&j->file, TN_ERR_FORMAT, item->at, "%s is an array of more than %d values", k->name,
                                   TN_MAX_CYCLE);
        one.offset = k->cycle + (size_t)n * k->bytes;
        s = tni_key_take(j, item, &one, d);
    }
    if (s == TN_OK && n == 0)
        return tni_reader_fail(&j->file, TN_ERR_FORMAT, v->at, "%s is an empty array, expected 1 to %d values", k->name,
                               TN_MAX_CYCLE);
    memcpy((char *)d + k->count, &n, sizeof n);
    return s;
}

TNI_COLD static tn_status tni_key_take(const tni_json *j, const tni_value *v, const tni_key *k, tn_transformer_desc *d)
{
    char      *at = (char *)d + k->offset;
    const bool yes = v->kind == TNI_JSON_TRUE, no = !yes;
    if (v->kind == TNI_JSON_ARRAY && k->count > 0) return tni_key_array(j, v, k, d);
    if (k->kind == TNI_KEY_INT || k->kind == TNI_KEY_REAL) return tni_key_number(j, v, k, at);
    if (k->kind == TNI_KEY_WORD) return tni_key_word(j, v, k, at);
    if (!yes && v->kind != TNI_JSON_FALSE) return tni_key_fail(j, v, k, "true or false");
    if (k->kind == TNI_KEY_MUST && yes != (k->low != 0))
        return tni_key_fail(j, v, k, yes ? "false: no other value is supported" : "true: no other value is supported");
    if (k->kind == TNI_KEY_BOOL && k->bytes > 0) memcpy(at, &yes, sizeof yes);
    if (k->kind == TNI_KEY_NOT) memcpy(at, &no, sizeof no);
    return TN_OK;
}

/* Keys of transformers that change nothing in what is computed here, or that are read elsewhere. A star stands for any text. */
static bool tni_key_is_idle(const char *name, bool windows)
{
    static const char *const idle[] = {
        "architectures", "model_type", "dtype", "torch_dtype", "transformers_version", "use_cache", "*_token_id", "*_dropout",
        "*_pdrop", "initializer_range", "summary_*", "output_*", "return_dict*", "_*", "id2label", "label2id", "num_labels",
        "task_specific_params", "problem_type", "tokenizer_class", "pretraining_tp", "n_ctx", "reorder_and_upcast_attn",
        "rope_scaling", "rope_parameters", "rope_type", "type", "num_key_value_heads", "is_decoder", "name_or_path",
        "gradient_checkpointing", "keys_to_ignore_at_inference", "chunk_size_feed_forward", "tokenizer", "repo", "step",
        "cache_implementation", "gate", "modifier", "noise",
        "sliding_window", "use_sliding_window", "max_window_layers", "layer_types"          /* the last four: of windows */
    };
    const size_t count = sizeof idle / sizeof *idle - (windows ? 0 : 4), length = strlen(name);
    for (size_t i = 0; i < count; i++) {
        size_t n = strlen(idle[i]) - 1;
        if (idle[i][0] == '*' ? length >= n && strcmp(name + length - n, idle[i] + 1) == 0
            : idle[i][n] == '*' ? strncmp(name, idle[i], n) == 0 : strcmp(name, idle[i]) == 0) return true;
    }
    return false;
}

/* Says which keys of the object nothing has read. Values that are null, false or empty switch nothing on, and are not
   reported. */
static void tni_config_unread(const tni_json *j, const tni_value *root, const char *where, const tni_key *keys, size_t n,
                              bool windows)
{
    char    names[320];
    size_t  used = 0;
    int64_t count = 0;
    for (const tni_value *v = tni_json_child(j, root); v; v = tni_json_next(j, v)) {
        const char *name = tni_json_key(j, v);
        if (v->kind < TNI_JSON_TRUE || (v->kind >= TNI_JSON_ARRAY && v->child == 0)) continue;
        if (tni_key_find(keys, n, name) || tni_key_is_idle(name, windows)) continue;
        if (count++ < 4) used += tni_print(names + used, sizeof names - used, "%s%s", count > 1 ? ", " : "", tni_quote(name).s);
    }
    if (count > 0)
        tni_log(j->file.ctx, TN_LOG_WARN, "%s: these keys%s are not read, as no setting here has them: %s%s", j->file.name.s,
                where,
                names, count > 4 ? ", ..." : "");
}

/* Reads the object into the desc. `own`: unknown keys are errors; otherwise null and keys not in the table are ignored. */
static tn_status tni_config_take(tni_json *j, const tni_value *root, const tni_key *keys, size_t n, bool own,
                                 tn_transformer_desc *d)
{
    tn_status s = TN_OK;
    for (const tni_value *v = tni_json_child(j, root); v && s == TN_OK; v = tni_json_next(j, v)) {
        const char    *name = tni_json_key(j, v);
        const tni_key *k = tni_key_find(keys, n, name);
        if (own && !k && strcmp(name, "model_type") != 0)
            return tni_reader_fail(&j->file, TN_ERR_FORMAT, v->at, "unknown key %s of a transformer", tni_quote(name).s);
        if (k && (own || v->kind != TNI_JSON_NULL)) s = tni_key_take(j, v, k, d);
    }
    for (size_t i = 0; i < n && s == TN_OK; i++) {
        const tni_value *v = tni_json_get(j, root, keys[i].name);          /* for all keys, as it finds duplicates */
        if (keys[i].required && (!v || v->kind == TNI_JSON_NULL))
            s = tni_reader_fail(&j->file, TN_ERR_FORMAT, j->scan.bytes, "missing key %s", keys[i].name);
    }
    return s;
}

static tn_status tni_config_gpt2(tni_json *j, const tni_value *root, tn_transformer_desc *d)
{
    d->mlp = TN_MLP_GELU_TANH;
    d->norm = TN_NORM_LAYER;
    d->norm_bias = true;
    d->positions = TN_POSITIONS_LEARNED;
    d->attn_bias = d->attn_out_bias = d->mlp_bias = d->mlp_out_bias = d->tied = true;
    tni_config_unread(j, root, "", TNI_KEYS(tni_gpt2_keys), false);
    return tni_config_take(j, root, TNI_KEYS(tni_gpt2_keys), false, d);
}

/* The object under "rope_scaling" or "rope_parameters". */
static tn_status tni_config_rope(tni_json *j, const tni_value *root, const char *key, tn_transformer_desc *d)
{
    const tni_value *rope = tni_json_get(j, root, key);
    tn_rope_scaling *r = &d->rope_scaling;
    tn_status        s;
    if (!rope || rope->kind == TNI_JSON_NULL) return TN_OK;
    if (rope->kind != TNI_JSON_OBJECT)
        return tni_reader_fail(&j->file, TN_ERR_FORMAT, rope->at, "%s is not an object or null", key);
    if ((s = tni_config_take(j, rope, TNI_KEYS(tni_rope_keys), false, d)) != TN_OK) return s;
    tni_config_unread(j, rope, " of RoPE", TNI_KEYS(tni_rope_keys), false);
    const tni_value *type = tni_json_get(j, rope, "rope_type");
    if (!type) type = tni_json_get(j, rope, "type");
    const char *kind = !type ? "default" : tni_json_is(type, TNI_JSON_STRING) ? j->scan.text + type->string : "";
    if (strcmp(kind, "default") == 0) memset(r, 0, sizeof *r);
    else if (strcmp(kind, "linear") == 0) r->low = r->high = r->context = 0;
    else if (strcmp(kind, "llama3") != 0)
        return tni_reader_fail(&j->file, TN_ERR_FORMAT, type->at, "%s: rope_type is %s, expected default, linear or llama3",
                               key, tni_quote(kind).s);
    else if (r->context == 0 || !(r->high > r->low))
        return tni_reader_fail(&j->file, TN_ERR_FORMAT, rope->at, "%s: llama3 needs original_max_position_embeddings, and "
                               "low_freq_factor below high_freq_factor", key);
    if (strcmp(kind, "default") != 0 && r->factor == 0)
        return tni_reader_fail(&j->file, TN_ERR_FORMAT, rope->at, "%s: missing key factor", key);
    return TN_OK;
}

/* Counts the layers of "layer_types", which has one of two words for each layer, and those that have a window. */
static tn_status tni_config_layers(tni_json *j, const tni_value *types, int64_t *sliding, int64_t *count)
{
    for (const tni_value *v = tni_json_child(j, types); v; v = tni_json_next(j, v), ++*count) {
        const char *word = tni_json_is(v, TNI_JSON_STRING) ? j->scan.text + v->string : "";
        if (strcmp(word, "sliding_attention") == 0) ++*sliding;
        else if (strcmp(word, "full_attention") != 0)
            return tni_reader_fail(&j->file, TN_ERR_FORMAT, v->at, "layer_types has %s, expected full_attention or "
                                   "sliding_attention", *word ? tni_quote(word).s : "what is not a word");
    }
    return TN_OK;
}

/* Whether a value that switches windows on is there, and of its kind: `kind` is a number, or true where it is a flag. */
static tn_status tni_config_kind(tni_json *j, const tni_value *v, tni_json_kind kind, const char *must)
{
    const bool flag = kind == TNI_JSON_TRUE && v && v->kind == TNI_JSON_FALSE;
    if (!v || v->kind == TNI_JSON_NULL || flag || (v->kind == kind && !(kind == TNI_JSON_NUMBER && v->number > INT32_MAX)))
        return TN_OK;
    return tni_reader_fail(&j->file, TN_ERR_FORMAT, v->at, "%s", must);
}

/* The window of Mistral, and of Qwen2 where it uses one; "layer_types" has a word for each layer. */
static tn_status tni_config_window(tni_json *j, const tni_value *root, bool mistral, tn_transformer_desc *d)
{
    const tni_value *v = tni_json_get(j, root, "sliding_window"), *types = tni_json_get(j, root, "layer_types");
    const tni_value *first = tni_json_get(j, root, "max_window_layers"), *use = tni_json_get(j, root, "use_sliding_window");
    const bool       used = mistral || tni_json_is(use, TNI_JSON_TRUE), listed = types && types->kind != TNI_JSON_NULL;
    const uint64_t   full = tni_json_is(first, TNI_JSON_NUMBER) ? first->number : 28;
    int64_t          sliding = 0, count = 0;
    tn_status        s = tni_config_kind(j, v, TNI_JSON_NUMBER, "sliding_window is not null or a positive integer");
    if (s == TN_OK) s = tni_config_kind(j, use, TNI_JSON_TRUE, "use_sliding_window is not true or false");
    if (s == TN_OK) s = tni_config_kind(j, first, TNI_JSON_NUMBER, "max_window_layers is not an integer");
    if (s == TN_OK) s = tni_config_kind(j, types, TNI_JSON_ARRAY, "layer_types is not an array");
    if (s == TN_OK && listed) s = tni_config_layers(j, types, &sliding, &count);
    if (s != TN_OK) return s;
    if (tni_json_is(v, TNI_JSON_NUMBER) && v->number == 0)
        return tni_reader_fail(&j->file, TN_ERR_FORMAT, v->at, "sliding_window is not null or a positive integer");
    if (!used || tni_json_is(v, TNI_JSON_NULL)) return TN_OK;
    if (listed && count != d->layers)
        return tni_reader_fail(&j->file, TN_ERR_FORMAT, types->at, "layer_types has %lld words, expected %lld, the number of "
                               "layers", (long long)count, (long long)d->layers);
    if (!listed) {
        count = d->layers;
        sliding = mistral || full == 0 ? count : full >= (uint64_t)count ? 0 : count - (int64_t)full;
    }
    if (sliding > 0 && sliding < count)
        return tni_reader_fail(&j->file, TN_ERR_FORMAT, types ? types->at : first ? first->at : 0,
                               "%lld of %lld layers have a window, expected all or none", (long long)sliding,
                               (long long)count);
    if (sliding > 0) d->window = v ? (int64_t)v->number : 4096;
    return TN_OK;
}

typedef enum tni_relative { TNI_LLAMA, TNI_MISTRAL, TNI_QWEN2, TNI_QWEN3 } tni_relative;

TNI_COLD static tn_status tni_config_llama(tni_json *j, const tni_value *root, tni_relative which, tn_transformer_desc *d)
{
    d->mlp = TN_MLP_SWIGLU;
    d->norm_eps = 1e-6;
    if (which == TNI_QWEN3) d->d_qk = 128;
    tni_config_unread(j, root, "", TNI_KEYS(tni_llama_keys), which != TNI_LLAMA);
    tn_status s = tni_config_take(j, root, TNI_KEYS(tni_llama_keys), false, d);
    if (s == TN_OK) s = tni_config_rope(j, root, "rope_scaling", d);
    if (s == TN_OK) s = tni_config_rope(j, root, "rope_parameters", d);
    if (s == TN_OK && which != TNI_LLAMA) {
        if ((d->attn_bias && which != TNI_QWEN3) || d->mlp_bias)
            tni_log(j->file.ctx, TN_LOG_WARN, "%s: attention_bias and mlp_bias are read for llama only", j->file.name.s);
        d->attn_bias = d->attn_bias && which == TNI_QWEN3;
        d->mlp_bias = false;                            /* not read by these models */
        s = tni_config_window(j, root, which == TNI_MISTRAL, d);
    }
    d->d_v = d->d_qk;                                       /* head_dim is both */
    d->attn_out_bias = d->attn_bias;
    d->mlp_out_bias = d->mlp_bias;
    if (which == TNI_QWEN2) d->attn_bias = true;            /* of q, k and v only */
    d->qk_norm = d->qk_gain = which == TNI_QWEN3;
    if (which == TNI_QWEN3) d->qk_norm_eps = d->norm_eps;
    return s;
}

/* The embedding is multiplied by sqrt(dim) as it is read, so that it is not tied to the unembedding. */
static tn_status tni_config_gemma(tni_json *j, const tni_value *root, tn_transformer_desc *d)
{
    d->mlp = TN_MLP_GEGLU_TANH;
    d->norm_eps = 1e-6;
    d->d_qk = 256;
    tni_config_unread(j, root, "", TNI_KEYS(tni_gemma_keys), false);
    tn_status s = tni_config_take(j, root, TNI_KEYS(tni_gemma_keys), false, d);
    const tni_value *act = tni_json_get(j, root, tni_gemma_keys[0].name);      /* whatever hidden_act says */
    if (s == TN_OK && act && act->kind != TNI_JSON_NULL) s = tni_key_take(j, act, &tni_gemma_keys[0], d);
    if (s == TN_OK) s = tni_config_rope(j, root, "rope_scaling", d);
    if (s == TN_OK) s = tni_config_rope(j, root, "rope_parameters", d);
    d->d_v = d->d_qk;
    d->attn_out_bias = d->attn_bias;
    d->tied = false;
    return s;
}

static bool tni_config_yes(tni_json *j, const tni_value *root, const char *key)
{
    return tni_json_is(tni_json_get(j, root, key), TNI_JSON_TRUE);
}

/* The models of Pearce, Dooms et al. 2024. The first ones say n_vocab and have gains; later ones scale attention by depth, and
   leave the vocabulary to the tokenizer. A gate is the function of the first encoder, and true is "relu". */
static tn_status tni_config_bilinear(tni_json *j, const tni_value *root, tn_transformer_desc *d)
{
    static const char *const gates[] = {"relu", "silu", "gelu"};
    static const tn_mlp_kind kinds[2][4] = {{TN_MLP_RELU, TN_MLP_SWISH, TN_MLP_GELU, TN_MLP_BILINEAR},
                                            {TN_MLP_REGLU, TN_MLP_SWIGLU, TN_MLP_GEGLU, TN_MLP_BILINEAR}};
    const tni_value *gate = tni_json_get(j, root, "gate");
    const char      *word = tni_json_is(gate, TNI_JSON_STRING) ? j->scan.text + gate->string : "";
    const bool       first = tni_json_get(j, root, "n_vocab") != NULL;
    tn_status        s = tni_config_take(j, root, TNI_KEYS(tni_bilinear_keys), false, d);
    const tni_value *norms = tni_json_get(j, root, "normalization");
    const bool       pair = tni_config_yes(j, root, "bilinear");
    int              k = 0;
    while (k < 3 && strcmp(word, gates[k]) && !(k == 0 && tni_json_is(gate, TNI_JSON_TRUE))) k++;
    if (s == TN_OK && k == 3 && gate && gate->kind > TNI_JSON_FALSE)
        s = tni_reader_fail(&j->file, TN_ERR_FORMAT, gate->at, "gate is %s, expected null, relu, silu or gelu",
                            *word ? tni_quote(word).s : "not a word");
    if (s == TN_OK && d->vocab == 0)
        s = tni_reader_fail(&j->file, TN_ERR_FORMAT, j->scan.bytes, "missing key vocab_size, the number of the embedding's rows");
    tni_config_unread(j, root, "", TNI_KEYS(tni_bilinear_keys), false);
    d->mlp = kinds[pair][k];
    if (k == 3 && !pair) d->mlp_order = 1;                  /* a linear map */
    d->mlp_out_bias = d->mlp_bias;
    if (norms && norms->kind == TNI_JSON_NULL) d->no_norm = true;
    d->norm_eps = 1e-8;
    d->no_norm_gain = !first;
    d->attn_scale = first ? 1 : TN_SCALE_DEPTH;
    return s;
}

/* The names that the config has for what modded-nanoGPT (K. Jordan et al. 2024) has too, and for tensor networks. Its norms add
   the eps of float to the mean square. */
static tn_status tni_config_modded(tni_json *j, const tni_value *root, tn_transformer_desc *d)
{
    tn_status  s = tni_config_take(j, root, TNI_KEYS(tni_modded_keys), false, d);
    const bool pair = tni_config_yes(j, root, "bilinear"), gated = tni_config_yes(j, root, "gated");
    const bool squared = tni_config_yes(j, root, "squared_attn"), sets = tni_config_yes(j, root, "bilinear_attn");
    tni_config_unread(j, root, "", TNI_KEYS(tni_modded_keys), false);
    if (!pair || d->hidden == 0) d->hidden = 4;
    if (s == TN_OK && d->hidden > INT32_MAX / d->dim)
        s = tni_reader_fail(&j->file, TN_ERR_FORMAT, 0, "expansion_factor times n_embd is above 2^31 - 1");
    d->hidden *= d->dim;
    d->mlp = pair ? gated ? TN_MLP_SWIGLU : TN_MLP_BILINEAR
           : tni_config_yes(j, root, "squared_mlp") ? TN_MLP_BILINEAR : TN_MLP_RELU2;
    d->attention = sets ? squared ? TN_ATTENTION_BILINEAR : TN_ATTENTION_DIFFERENTIAL_PLAIN
                        : squared ? TN_ATTENTION_SQUARED : TN_ATTENTION_SOFTMAX;
    if (sets && !squared) {                                 /* scores over d, and heads of whole width */
        d->d_qk = d->dim / tni_max(d->heads, 1);
        d->score_scale = 1 / (double)tni_max(d->d_qk, 1);
        d->lambda_init = 0.8;
    }
    d->context = 1024;
    d->norm_eps = d->qk_norm_eps = 1.1920928955078125e-07;
    d->softcap = 30;
    d->no_norm_gain = d->embed_norm = d->qk_norm = d->x0_residual = d->value_residual = d->mlp_out_bias = true;
    return s;
}

/* no_norm_bias is false where it is absent, and does not apply to RMSNorm. */
static tn_status tni_config_own(tni_json *j, const tni_value *root, tn_transformer_desc *d)
{
    d->norm_bias = true;
    tn_status s = tni_config_take(j, root, TNI_KEYS(tni_config_keys), true, d);
    if (d->norm != TN_NORM_LAYER) d->norm_bias = false;
    return s;
}

static tn_status tni_config_any(tni_json *j, tn_transformer_desc *d)
{
    const tni_value *root = tni_json_at(j, 1), *type = tni_json_get(j, root, "model_type");
    const char      *name = tni_json_is(type, TNI_JSON_STRING) ? j->scan.text + type->string : "";
    memset(d, 0, sizeof *d);
    if (root->kind != TNI_JSON_OBJECT)
        return tni_reader_fail(&j->file, TN_ERR_FORMAT, root->at, "unexpected value, expected an object");
    const tni_value *quantised = tni_json_get(j, root, "quantization_config");
    if (quantised && quantised->kind != TNI_JSON_NULL)
        return tni_reader_fail(&j->file, TN_ERR_FORMAT, quantised->at, "quantization_config is given, expected weights that are "
                               "not quantised");
    if (strcmp(name, "gpt2") == 0) return tni_config_gpt2(j, root, d);
    if (strcmp(name, "llama") == 0) return tni_config_llama(j, root, TNI_LLAMA, d);
    if (strcmp(name, "mistral") == 0) return tni_config_llama(j, root, TNI_MISTRAL, d);
    if (strcmp(name, "qwen2") == 0) return tni_config_llama(j, root, TNI_QWEN2, d);
    if (strcmp(name, "qwen3") == 0) return tni_config_llama(j, root, TNI_QWEN3, d);
    if (strcmp(name, "gemma") == 0) return tni_config_gemma(j, root, d);
    if ((!type || !*name) && tni_json_get(j, root, "bilinear"))
        return tni_json_get(j, root, "n_embd") ? tni_config_modded(j, root, d) : tni_config_bilinear(j, root, d);
    if (!type || strcmp(name, "tensornet") == 0) return tni_config_own(j, root, d);
    return tni_reader_fail(&j->file, TN_ERR_FORMAT, type->at, "model_type is %s, expected tensornet, gpt2, llama, "
                           "mistral, qwen2, qwen3 or gemma",
                           type->kind == TNI_JSON_STRING ? tni_quote(name).s : "not a string");
}

tn_status tn_transformer_config_read(tn_ctx *ctx, tn_source source, tn_transformer_desc *desc)
{
    tni_json            j;
    tn_transformer_desc d;
    if (!ctx) return TN_ERR_ARG;
    if (!desc) return tni_fail(ctx, TN_ERR_ARG, "config: desc is NULL");
    tn_status s = tni_json_open(&j, ctx, &source) ? tni_config_any(&j, &d) : ctx->status;
    if (j.twice) s = TN_ERR_FORMAT;
    tni_json_close(&j);
    return s == TN_OK ? tn_transformer_check(ctx, &d, desc) : s;
}

static void tni_text_value(tni_text *t, const tni_key *k, const char *at)
{
    const tni_choice *w;
    int64_t         n;
    double          v;
    char            number[32];
    bool            yes;
    switch (k->kind) {
    case TNI_KEY_INT:  memcpy(&n, at, sizeof n); tni_text_signed(t, n); break;
    case TNI_KEY_REAL:
        memcpy(&v, at, sizeof v);
        tni_exact_text(number, v);
        tni_text_string(t, number);
        break;
    case TNI_KEY_WORD:
        for (w = k->words; w->word && w->value != tni_word_get(at, k->bytes); w++) {}
        tni_text_json(t, w->word);
        break;
    default:
        memcpy(&yes, at, sizeof yes);
        tni_text_string(t, yes == (k->kind != TNI_KEY_NOT) ? "true" : "false");
    }
}

/* An extent on which the blocks of a cycle differ is not written. */
static bool tni_key_is_open(const tni_key *k, const tn_transformer_desc *d)
{
    int64_t n;
    if (k->kind != TNI_KEY_INT) return false;
    memcpy(&n, (const char *)d + k->offset, sizeof n);
    return (double)n < k->low;
}

/* "key": value, or "key": [value, ...] */
static void tni_text_key(tni_text *t, const tni_key *k, const tn_transformer_desc *d)
{
    const char *base = (const char *)d;
    int64_t     count = 0;
    if (k->count > 0) memcpy(&count, base + k->count, sizeof count);
    tni_text_json(t, k->name);
    tni_text_string(t, count > 0 ? ": [" : ": ");
    if (count == 0) tni_text_value(t, k, base + k->offset);
    for (int64_t i = 0; i < count; i++) {
        if (i > 0) tni_text_string(t, ", ");
        tni_text_value(t, k, base + k->cycle + (size_t)i * k->bytes);
    }
    if (count > 0) tni_text_string(t, "]");
}

tn_status tn_transformer_config_write(tn_ctx *ctx, const tn_transformer_desc *desc, tn_sink sink)
{
    tn_transformer_desc d;
    tni_writer          w;
    char                line[128 + 24 * TN_MAX_CYCLE];
    size_t              n = sizeof tni_config_keys / sizeof *tni_config_keys;
    tn_status           s;
    if (!ctx) return TN_ERR_ARG;
    if ((s = tn_transformer_check(ctx, desc, &d)) != TN_OK) return s;
    if (d.norm != TN_NORM_LAYER) d.norm_bias = true;        /* written as no_norm_bias: false */
    tni_writer_open(&w, ctx, &sink);
    for (size_t i = 0; i <= n; i++) {
        if (i > 0 && i < n && tni_key_is_open(&tni_config_keys[i - 1], &d)) continue;
        tni_text t = {line, sizeof line, 0};
        tni_text_string(&t, i == 0 ? "{\n  \"model_type\": \"tensornet\"" : ",\n  ");
        if (i > 0) tni_text_key(&t, &tni_config_keys[i - 1], &d);
        if (i == n) tni_text_string(&t, "\n}\n");
        tni_put(&w, line, t.length);
    }
    return tni_writer_close(&w);
}

#endif /* TN_NO_MODELS */
