/* live.c - a model that answers inside a page: predictions, what spoke for them, what an ablation changes

   wasm.sh compiles this file with the library to WebAssembly, and live.js calls it. Every call leaves its numbers in
   wasm_numbers and its texts in wasm_words (wasm.h), and returns how many there are, or -1 with the reason in wasm_words.

   An image classifier is a safetensors file with p [classes,h], f0 and f1 [h,pixels] and, both or none, linear
   [classes,pixels] and constant [classes]: logits = p ((f0 x) * (f1 x)) + linear x + constant. A language model is the three
   files of a run: weights, config.json and tokenizer.json. */
#ifdef __wasm__
#define TN_NO_TRAINING
#define TN_NO_IMAGE
#endif
#define TENSORNET_IMPLEMENTATION
#include "tensornet.h"
#include "wasm.h"
#include <math.h>

enum { PAIRS = 24,              /* eigenpairs of a class that are computed at first         */
       MOST_TOKENS = 256 };     /* of a text: longer ones are cut at their beginning        */

/* ---- the model: of one of two kinds ------------------------------------------------------------------------------------ */

typedef struct class_of { int64_t count; double *value, *vector; bool *off; } class_of;     /* eigenpairs of one output */

static tn_cp     *quadratic;            /* of an image classifier: p ((f0 x) * (f1 x))      */
static tn_tensor *linear, *constant;    /* the rest of it, or NULL                          */
static double    *input;                /* [pixels] the last picture                        */
static class_of  *class_list;           /* [classes], NULL vectors until they are needed    */
static int64_t    pixels;

static tn_transformer net;
static tn_tokenizer  *tokenizer;
static const char   **names;            /* [vocab] of tokens                                          */
static bool          *off;              /* [layers,heads + 1]: which heads, and last the MLP, are ablated */
static int32_t        text[MOST_TOKENS];
static int64_t        length;

static void forget(void)
{
    int64_t c;
    for (c = 0; class_list && c < quadratic->out; c++) {
        free(class_list[c].value);
        free(class_list[c].vector);
        free(class_list[c].off);
    }
    free(class_list);
    free(input);
    class_list = NULL;
    quadratic = NULL;
    input = NULL;
    free(names);
    free(off);
    names = NULL;
    off = NULL;
    tokenizer = NULL;
    length = 0;
}

/* ---- image classifiers ------------------------------------------------------------------------------------------------ */

static bool read_classifier(const void *bytes, size_t count)
{
    tn_safetensors *file = tn_safetensors_open(ctx, tn_source_memory(bytes, count));
    tn_tensor      *p = tn_safetensors_read(file, "p"), *f[2];
    f[0] = tn_safetensors_read(file, "f0");
    f[1] = tn_safetensors_read(file, "f1");
    quadratic = tn_cp_create(ctx, 2, p, f, TN_CP_INPUT_PLAIN);
    linear = constant = NULL;
    if (quadratic && tn_safetensors_find(file, "linear")) {
        linear = tn_safetensors_read(file, "linear");
        constant = tn_safetensors_read(file, "constant");
    }
    tn_safetensors_close(file);
    if (tn_ctx_status(ctx) != TN_OK) return false;
    pixels = quadratic->in[0];
    if (linear && (linear->rank != 2 || linear->shape[0] != quadratic->out || linear->shape[1] != pixels
                   || tn_tensor_count(constant) != quadratic->out)) return false;
    return quadratic->in[1] == pixels;
}

/* Opens an image classifier. Returns its number of classes; numbers: classes, pixels. */
int EXPORT(live_images)(const void *bytes, size_t count)
{
    forget();
    if (!new_context(0)) return -1;
    if (!read_classifier(bytes, count)) {
        quadratic = NULL;
        return refuse(tn_ctx_status(ctx) == TN_OK ? "the classifier's matrices do not fit together" : tn_ctx_error(ctx));
    }
    input = (double *)calloc((size_t)pixels, sizeof *input);
    class_list = (class_of *)calloc((size_t)quadratic->out, sizeof *class_list);
    if (!input || !class_list || !begin(2)) return refuse("out of memory");
    numbers[0] = (double)quadratic->out;
    numbers[1] = (double)pixels;
    return end(quadratic->out);
}

static bool class_is(int c) { return quadratic && c >= 0 && c < quadratic->out; }

static bool make_room(class_of *one, int64_t count)
{
    one->count = count;
    one->value = (double *)malloc((size_t)count * sizeof *one->value);
    one->off = (bool *)calloc((size_t)count, sizeof *one->off);
    one->vector = (double *)malloc((size_t)(count * pixels) * sizeof *one->vector);
    return one->value && one->off && one->vector;
}

/* Takes eigenpairs of a class that the page has already, value [count] and vector [count,pixels], in the order of |value|.
   Returns their number. */
int EXPORT(live_pairs)(int c, const float *value, size_t count, const float *vector, size_t numbers_of_vectors)
{
    class_of *one = class_is(c) ? &class_list[c] : NULL;
    size_t    i;
    if (!one || one->vector || !count || numbers_of_vectors != count * (size_t)pixels)
        return refuse("these are not eigenpairs of a class");
    if (!make_room(one, (int64_t)count)) return refuse("out of memory");
    for (i = 0; i < count; i++) one->value[i] = (double)value[i];
    for (i = 0; i < numbers_of_vectors; i++) one->vector[i] = (double)vector[i];
    return begin(0) ? end((int64_t)count) : end(-1);
}

/* The eigenpairs of a class, computed when they are first asked for, unless the page had them. */
static bool pairs_of(int64_t c)
{
    class_of     *one = &class_list[c];
    const int64_t most = pixels < 2 * quadratic->terms ? pixels : 2 * quadratic->terms;
    tn_tensor    *u;
    tn_eigen      e;
    double        unit = 1;
    bool          room;
    if (one->vector) return true;
    u = tn_full(ctx, 1, &quadratic->out, 0);
    tn_write(tn_slice(u, 0, c, c + 1), TN_F64, &unit, 1);
    if (tn_cp_eigen(quadratic, u, most < PAIRS ? most : PAIRS, &e) != TN_OK) return false;
    room = make_room(one, e.count);
    if (room) {
        tn_read(e.values, TN_F64, one->value, e.count);
        tn_read(e.vectors, TN_F64, one->vector, e.count * pixels);
    }
    tn_eigen_destroy(&e);
    return room;
}

/* value_k (v_k . x)^2 of the last picture: what eigenvector k adds to the logit of its class. */
static double says(const class_of *one, int64_t k)
{
    double  dot = 0;
    int64_t i;
    for (i = 0; i < pixels; i++) dot += one->vector[k * pixels + i] * input[i];
    return one->value[k] * dot * dot;
}

static void logits_of_picture(void)
{
    tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, 1, pixels), *y;
    int64_t    c, k;
    tn_write(x, TN_F64, input, pixels);
    y = tn_cp_apply(ctx, quadratic, x);
    if (linear) y = tn_add(ctx, y, tn_affine(ctx, x, linear, constant));
    tn_read(y, TN_F64, numbers, quadratic->out);
    for (c = 0; c < quadratic->out; c++)
        for (k = 0; k < class_list[c].count; k++) if (class_list[c].off[k]) numbers[c] -= says(&class_list[c], k);
}

/* The logits of a picture [pixels], without the eigenvectors that are ablated. count 0: of the last picture again. */
int EXPORT(live_see)(const float *picture, size_t count)
{
    size_t i;
    if (!quadratic || (count && count != (size_t)pixels)) return refuse("the picture is not of the model's size");
    if (!begin(quadratic->out)) return end(-1);
    for (i = 0; i < count; i++) input[i] = (double)picture[i];
    logits_of_picture();
    return end(quadratic->out);
}

/* What the eigenvectors of a class add to its logit for the last picture, in the order of |value|. Returns their number;
   numbers: of each its value and what it adds; then the rest: all other eigenvectors, the linear part and the constant. */
int EXPORT(live_spoke)(int c)
{
    double  rest;
    int64_t k;
    if (!class_is(c)) return refuse("there is no such class");
    if (!pairs_of(c) || !begin(quadratic->out)) return end(-1);
    logits_of_picture();
    rest = numbers[c];
    if (!begin(2 * class_list[c].count + 1)) return end(-1);
    for (k = 0; k < class_list[c].count; k++) {
        numbers[2 * k] = class_list[c].value[k];
        numbers[2 * k + 1] = says(&class_list[c], k);
        if (!class_list[c].off[k]) rest -= numbers[2 * k + 1];
    }
    numbers[2 * k] = rest;
    return end(class_list[c].count);
}

/* The picture of an eigenvector of a class: numbers [pixels]. */
int EXPORT(live_picture)(int c, int k)
{
    if (!class_is(c) || !pairs_of(c) || k < 0 || k >= class_list[c].count) return refuse("there is no such eigenvector");
    if (!begin(pixels)) return end(-1);
    memcpy(numbers, class_list[c].vector + k * pixels, (size_t)pixels * sizeof *numbers);
    return end(pixels);
}

/* ---- language models -------------------------------------------------------------------------------------------------- */

/* Opens a language model. Returns its vocabulary; numbers: vocabulary, blocks, heads of a block; words: the names of all
   tokens. */
int EXPORT(live_language)(const void *weights, size_t weight_bytes, const void *config, size_t config_bytes,
                          const void *tokens, size_t token_bytes)
{
    tn_transformer_desc desc;
    tn_params          *params;
    int64_t             i;
    forget();
    if (!new_context(0)) return -1;
    if (tn_transformer_config_read(ctx, tn_source_memory(config, config_bytes), &desc) != TN_OK) return end(-1);
    params = tn_params_create(ctx);
    tn_transformer_init(params, "", &desc, &net);
    tn_params_read(params, tn_source_memory(weights, weight_bytes), TN_MATCH_IGNORE_EXTRA);
    tokenizer = token_bytes ? tn_tokenizer_read(ctx, tn_source_memory(tokens, token_bytes)) : tn_tokenizer_create_bytes(ctx);
    if (tn_ctx_status(ctx) != TN_OK) return end(-1);
    off = (bool *)calloc((size_t)(net.desc.layers * (net.desc.heads + 1)), sizeof *off);
    names = (const char **)malloc((size_t)net.desc.vocab * sizeof *names);
    if (!off || !names || !begin(3)) return refuse("out of memory");
    for (i = 0; i < net.desc.vocab; i++) {
        names[i] = tn_tokenizer_token(tokenizer, i);
        if (!names[i]) names[i] = "";           /* an imported model may have more rows than its tokenizer tokens */
        if (!say(names[i])) return refuse("out of memory");
    }
    numbers[0] = (double)net.desc.vocab;
    numbers[1] = (double)net.desc.layers;
    numbers[2] = (double)net.desc.heads;
    return end(net.desc.vocab);
}

/* Reads a text, whose last MOST_TOKENS tokens are kept. Returns their number; numbers: their ids. */
int EXPORT(live_text)(const char *bytes, size_t count)
{
    const tn_bos bos = tn_tokenizer_bos(tokenizer) >= 0 ? TN_BOS_FIRST : TN_BOS_NONE;
    int64_t      all, most = net.desc.positions == TN_POSITIONS_LEARNED && net.desc.context < MOST_TOKENS
                             ? net.desc.context : MOST_TOKENS, i;
    int32_t     *ids;
    if (!tokenizer) return refuse("no language model is open");
    all = tn_tokenizer_encode(tokenizer, bytes, count, bos, NULL, 0, NULL);
    ids = (int32_t *)malloc((size_t)(all > 0 ? all : 1) * sizeof *ids);
    length = all < 0 ? 0 : all < most ? all : most;
    if (all < 0 || !ids || !begin(length)) {
        free(ids);
        return end(-1);
    }
    tn_tokenizer_encode(tokenizer, bytes, count, bos, ids, all, NULL);
    for (i = 0; i < length; i++) numbers[i] = text[i] = ids[all - length + i];
    free(ids);
    return end(length);
}

static tn_tensor *ids_tensor(const int32_t *ids)
{
    tn_tensor *t = tn_tensor_2d(ctx, TN_I32, 1, length);
    tn_write(t, TN_I32, ids, length);
    return t;
}

/* A tap for `blocks.L.attn.z` and `blocks.L.mlp`: what is ablated becomes 0. */
static tn_tensor *ablate(tn_ctx *c, void *user, const char *name, tn_tensor *x)
{
    const int64_t block = strtol(name + strlen("blocks."), NULL, 10), heads = net.desc.heads;
    const bool   *gone = off + block * (heads + 1);
    tn_edit       edit;
    int64_t       h;
    (void)user;
    memset(&edit, 0, sizeof edit);
    if (strstr(name, ".mlp")) return gone[heads] ? tn_tap_edit(c, &edit, name, x) : x;
    for (h = 0; h < heads; h++) {
        edit.head = h;
        edit.heads = 1;
        if (gone[h]) x = tn_tap_edit(c, &edit, name, x);
    }
    return x;
}

/* Logits of the token after the text, in `numbers`. */
static bool logits_of_text(void)
{
    static const tn_tap taps[2] = {{"blocks.*.attn.z", ablate, NULL}, {"blocks.*.mlp", ablate, NULL}};
    int64_t             i, count = 0;
    tn_tensor          *y;
    for (i = 0; i < net.desc.layers * (net.desc.heads + 1); i++) count += off[i];
    if (count) y = tn_transformer_run(ctx, &net, ids_tensor(text), taps, 2);
    else y = tn_transformer_head(ctx, &net, tn_slice(tn_transformer_hidden(ctx, &net, ids_tensor(text)), 1, length - 1, length));
    return tn_read(count ? tn_slice(y, 1, length - 1, length) : y, TN_F64, numbers, net.desc.vocab) == TN_OK;
}

/* The next token of the text, without what is ablated. Returns the vocabulary; numbers: the logits, then the
   probabilities. */
int EXPORT(live_next)(void)
{
    const int64_t V = net.desc.vocab;
    double        most, sum = 0;
    int64_t       i;
    if (!length) return refuse("the text has no tokens");
    if (!begin(2 * V) || !logits_of_text()) return end(-1);
    for (most = numbers[0], i = 1; i < V; i++) if (numbers[i] > most) most = numbers[i];
    for (i = 0; i < V; i++) sum += numbers[V + i] = exp(numbers[i] - most);
    for (i = 0; i < V; i++) numbers[V + i] /= sum;
    return end(V);
}

/* What each part of the model adds to the logit of `token` after the text: direct logit attribution, of the whole model
   whatever is ablated. Returns the number of parts; numbers: one per part; words: their names. */
int EXPORT(live_parts)(int token)
{
    const int64_t parts = tn_transformer_parts(&net, NULL, 0);
    tn_point     *list = (tn_point *)malloc((size_t)(parts ? parts : 1) * sizeof *list);
    int64_t       i;
    if (length && list && begin(parts)) {
        int32_t    same[MOST_TOKENS];
        tn_tensor *y;
        for (i = 0; i < length; i++) same[i] = token;
        y = tn_transformer_attribution(ctx, &net, ids_tensor(text), ids_tensor(same), NULL);
        tn_read(tn_slice(y, 1, length - 1, length), TN_F64, numbers, parts);
        tn_transformer_parts(&net, list, parts);
        for (i = 0; i < parts; i++) say(list[i].name);
    }
    free(list);
    return length ? end(parts) : refuse("the text has no tokens");
}

static bool say_path(const tn_circuit_paths *paths, int64_t node)
{
    const int64_t bytes = tn_circuit_path_name(paths, node, names, NULL, 0);
    char         *name = bytes >= 0 ? (char *)malloc((size_t)bytes + 1) : NULL;
    bool          said = false;
    if (name && tn_circuit_path_name(paths, node, names, name, (size_t)bytes + 1) >= 0) said = say(name);
    free(name);
    return said;
}

/* The paths that add most to the logit of `token` after the text. Returns their number, at most `top`; numbers: the logit,
   the sum of all paths that were found, the sum of the others; then the value of each path; words: their names. */
int EXPORT(live_paths)(int token, int budget, int top)
{
    tn_circuit_frozen     frozen;
    tn_circuit_target     target;
    tn_circuit_paths_desc desc;
    tn_circuit_paths      paths;
    int64_t               i, count = 0;
    if (!length) return refuse("the text has no tokens");
    memset(&target, 0, sizeof target);
    memset(&desc, 0, sizeof desc);
    target.position = length - 1;
    target.token = token;
    desc.budget = budget;
    if (tn_circuit_freeze(ctx, &net, ids_tensor(text), &frozen) != TN_OK) return end(-1);
    if (tn_circuit_paths_find(&frozen, &target, &desc, &paths) == TN_OK) {
        count = paths.count < top ? paths.count : top;
        if (begin(3 + count)) {
            numbers[0] = paths.whole;
            numbers[1] = paths.found;
            numbers[2] = paths.rest;
            for (i = 0; i < count; i++) {
                numbers[3 + i] = paths.node[paths.path[i]].value;
                say_path(&paths, paths.path[i]);
            }
        }
        tn_circuit_paths_destroy(&paths);
    }
    tn_circuit_frozen_destroy(&frozen);
    return end(count);
}

/* ---- ablation --------------------------------------------------------------------------------------------------------- */

/* Ablates, or restores: of an image classifier eigenvector b of class a; of a language model head b of block a, or its MLP
   if b is the number of heads. */
int EXPORT(live_ablate)(int a, int b, int gone)
{
    if (quadratic) {
        if (!class_is(a) || !pairs_of(a) || b < 0 || b >= class_list[a].count) return refuse("there is no such eigenvector");
        class_list[a].off[b] = gone != 0;
        return end(0);
    }
    if (!off || a < 0 || a >= net.desc.layers || b < 0 || b > net.desc.heads) return refuse("there is no such head");
    off[a * (net.desc.heads + 1) + b] = gone != 0;
    return 0;
}
