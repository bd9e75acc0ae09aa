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
       VECTORS = 64,            /* eigenpairs of a token in an MLP                          */
       NEAREST = 4, NAMED = 8,  /* tokens that name an eigenvector, and how many have names */
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
static bool           no_mark;          /* a text begins without [BOS]                                */

/* Of each block: the eigenpairs of the token that was last asked for, in the order of |value|. The MLP adds to its logit
   the sum of value (vector . [z;1])^2 over the denominator of the last norm; z is the normed stream, before the gain. */
typedef struct vectors { int64_t token, count, n; double *value, *vector /* [count,n] */; } vectors;
/* An eigenvector that the MLP of its block does not see. */
typedef struct unseen { int64_t block, token, pair, n; double *vector; struct unseen *next; } unseen;
/* The weights of a block as they are in the file, kept when something of it is first ablated; changed: what is ablated is not
   what its weights say. made: a bias of encoders that had none, or NULL. */
typedef struct whole_block { float *w, *b, *p, *pb, *o, *out; tn_tensor *made; bool changed; } whole_block;
static vectors *vector_list;            /* [layers], NULL vectors until they are needed     */
static whole_block *whole_list;         /* [layers]                                         */
static unseen  *unseen_list;
static float   *token_list;             /* [vocab,dim] embeddings, normed; NULL until then  */

static void forget_vectors(vectors *v)
{
    free(v->value);
    free(v->vector);
    memset(v, 0, sizeof *v);
}

static void see_all(void)
{
    while (unseen_list) {
        unseen *next = unseen_list->next;
        free(unseen_list->vector);
        free(unseen_list);
        unseen_list = next;
    }
}

static void forget(void)
{
    see_all();
    for (int64_t c = 0; vector_list && c < net.desc.layers; c++) forget_vectors(&vector_list[c]);
    for (int64_t c = 0; whole_list && c < net.desc.layers; c++) {
        whole_block *w = &whole_list[c];
        free(w->w), free(w->b), free(w->p), free(w->pb), free(w->o), free(w->out);
    }
    free(whole_list);
    whole_list = NULL;
    free(vector_list);
    free(token_list);
    vector_list = NULL;
    token_list = NULL;
    for (int64_t c = 0; class_list && c < quadratic->out; c++) {
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
    no_mark = false;
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
    if (!one || one->vector || !count || numbers_of_vectors != count * (size_t)pixels)
        return refuse("these are not eigenpairs of a class");
    if (!make_room(one, (int64_t)count)) return refuse("out of memory");
    for (size_t i = 0; i < count; i++) one->value[i] = (double)value[i];
    for (size_t i = 0; i < numbers_of_vectors; i++) one->vector[i] = (double)vector[i];
    return begin(0) ? end((int64_t)count) : end(-1);
}

/* The eigenpairs of a class, computed when they are first asked for, unless the page had them. */
static bool pairs_of(int64_t c)
{
    class_of     *one = &class_list[c];
    const int64_t most = pixels < 2 * quadratic->terms ? pixels : 2 * quadratic->terms;
    tn_eigenpairs      e;
    double        unit = 1;
    if (one->vector) return true;
    tn_tensor *u = tn_full(ctx, 1, &quadratic->out, 0);
    tn_write(tn_slice(u, 0, c, c + 1), TN_F64, &unit, 1);
    if (tn_cp_eigen(quadratic, u, most < PAIRS ? most : PAIRS, &e) != TN_OK) return false;
    bool room = make_room(one, e.count);
    if (room) {
        tn_read(e.values, TN_F64, one->value, e.count);
        tn_read(e.vectors, TN_F64, one->vector, e.count * pixels);
    }
    tn_eigenpairs_destroy(&e);
    return room;
}

/* value_k (v_k . x)^2 of the last picture: what eigenvector k adds to the logit of its class. */
static double says(const class_of *one, int64_t k)
{
    double dot = 0;
    for (int64_t i = 0; i < pixels; i++) dot += one->vector[k * pixels + i] * input[i];
    return one->value[k] * dot * dot;
}

static void logits_of_picture(void)
{
    tn_tensor *x = tn_tensor_2d(ctx, TN_REAL, 1, pixels);
    tn_write(x, TN_F64, input, pixels);
    tn_tensor *y = tn_cp_apply(ctx, quadratic, x);
    if (linear) y = tn_add(ctx, y, tn_affine(ctx, x, linear, constant));
    tn_read(y, TN_F64, numbers, quadratic->out);
    for (int64_t c = 0; c < quadratic->out; c++)
        for (int64_t k = 0; k < class_list[c].count; k++) if (class_list[c].off[k]) numbers[c] -= says(&class_list[c], k);
}

/* The logits of a picture [pixels], without the eigenvectors that are ablated. count 0: of the last picture again. */
int EXPORT(live_see)(const float *picture, size_t count)
{
    if (!quadratic || (count && count != (size_t)pixels)) return refuse("the picture is not of the model's size");
    if (!begin(quadratic->out)) return end(-1);
    for (size_t i = 0; i < count; i++) input[i] = (double)picture[i];
    logits_of_picture();
    return end(quadratic->out);
}

/* What the eigenvectors of a class add to its logit for the last picture, in the order of |value|. Returns their number;
   numbers: of each its value and what it adds; then the rest: all other eigenvectors, the linear part and the constant. */
int EXPORT(live_spoke)(int c)
{
    int64_t k;
    if (!class_is(c)) return refuse("there is no such class");
    if (!pairs_of(c) || !begin(quadratic->out)) return end(-1);
    logits_of_picture();
    double rest = numbers[c];
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
    forget();
    if (!new_context(0)) return -1;
    if (tn_transformer_config_read(ctx, tn_source_memory(config, config_bytes), &desc) != TN_OK) return end(-1);
    tn_params *params = tn_params_create(ctx);
    tn_transformer_init(params, "", &desc, &net);
    tn_params_read(params, tn_source_memory(weights, weight_bytes), TN_MATCH_IGNORE_EXTRA);
    tokenizer = token_bytes ? tn_tokenizer_read(ctx, tn_source_memory(tokens, token_bytes)) : tn_tokenizer_create_bytes(ctx);
    if (tn_ctx_status(ctx) != TN_OK) return end(-1);
    off = (bool *)calloc((size_t)(net.desc.layers * (net.desc.heads + 1)), sizeof *off);
    vector_list = (vectors *)calloc((size_t)net.desc.layers, sizeof *vector_list);
    whole_list = (whole_block *)calloc((size_t)net.desc.layers, sizeof *whole_list);
    names = (const char **)malloc((size_t)net.desc.vocab * sizeof *names);
    if (!off || !vector_list || !whole_list || !names || !begin(3)) return refuse("out of memory");
    for (int64_t i = 0; i < net.desc.vocab; i++) {
        names[i] = tn_tokenizer_token(tokenizer, i);
        if (!names[i]) names[i] = "";           /* an imported model may have more rows than its tokenizer tokens */
        if (!say(names[i])) return refuse("out of memory");
    }
    numbers[0] = (double)net.desc.vocab;
    numbers[1] = (double)net.desc.layers;
    numbers[2] = (double)net.desc.heads;
    return end(net.desc.vocab);
}

/* Whether a text begins with [BOS], if the tokenizer has one; a model may never have learnt what follows it. */
int EXPORT(live_marks)(int wanted)
{
    no_mark = !wanted;
    return 0;
}

/* Reads a text, whose last MOST_TOKENS tokens are kept. Returns their number; numbers: their ids. */
int EXPORT(live_text)(const char *bytes, size_t count)
{
    const tn_bos bos = tn_tokenizer_bos(tokenizer) >= 0 && !no_mark ? TN_BOS_FIRST : TN_BOS_NONE;
    int64_t      most = net.desc.positions == TN_POSITIONS_LEARNED && net.desc.context < MOST_TOKENS
                        ? net.desc.context : MOST_TOKENS;
    if (!tokenizer) return refuse("no language model is open");
    int64_t  all = tn_tokenizer_encode(tokenizer, bytes, count, bos, NULL, 0, NULL);
    int32_t *ids = (int32_t *)malloc((size_t)(all > 0 ? all : 1) * sizeof *ids);
    length = all < 0 ? 0 : all < most ? all : most;
    if (all < 0 || !ids || !begin(length)) {
        free(ids);
        return end(-1);
    }
    tn_tokenizer_encode(tokenizer, bytes, count, bos, ids, all, NULL);
    for (int64_t i = 0; i < length; i++) numbers[i] = text[i] = ids[all - length + i];
    free(ids);
    return end(length);
}

static tn_tensor *ids_tensor(const int32_t *ids)
{
    tn_tensor *t = tn_tensor_2d(ctx, TN_I32, 1, length);
    tn_write(t, TN_I32, ids, length);
    return t;
}

static int64_t block_of(const char *name) { return strtol(name + strlen("blocks."), NULL, 10); }
static bool    ends(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

static bool block_is(int block) { return off && block >= 0 && block < net.desc.layers; }

/* The eigenvectors that a block does not see as orthonormal rows [count,dim + 1]: with the constant last, each says
   vector . z + constant = 0. Returns their number, or -1 without memory; *rows is the caller's. */
static int64_t unseen_rows(int64_t block, double **rows)
{
    const int64_t dim = net.desc.dim, n = dim + 1;
    int64_t       count = 0;
    const unseen *u;
    for (u = unseen_list; u; u = u->next) count += u->block == block;
    *rows = (double *)calloc((size_t)(count * n + 1), sizeof **rows);
    if (!*rows) return -1;
    for (count = 0, u = unseen_list; u; u = u->next) {
        double *row = *rows + count * n, size = 0;
        if (u->block != block) continue;
        memcpy(row, u->vector, (size_t)u->n * sizeof *row);
        if (u->n == dim) row[dim] = 0;
        for (int64_t i = 0; i < count; i++) {
            double dot = 0;
            for (int64_t k = 0; k < dim; k++) dot += row[k] * (*rows)[i * n + k];
            for (int64_t k = 0; k < n; k++) row[k] -= dot * (*rows)[i * n + k];
        }
        for (int64_t k = 0; k < dim; k++) size += row[k] * row[k];
        if (size < 1e-12) continue;             /* nothing new beside the others, or only the constant */
        for (int64_t k = 0; k < n; k++) row[k] /= sqrt(size);
        count++;
    }
    return count;
}

/* Reads a parameter of dim numbers, or `otherwise` for each. */
static void read_vector(const tn_tensor *t, double otherwise, double *to)
{
    for (int64_t k = 0; k < net.desc.dim; k++) to[k] = otherwise;
    if (t) tn_read(t, TN_F64, to, net.desc.dim);
}

/* Keeps the numbers of a parameter the first time, and writes them back later. */
static bool put_back(float **kept, tn_tensor *t)
{
    const int64_t n = t ? tn_tensor_count(t) : 0;
    if (!n) return true;
    if (*kept) return tn_write(t, TN_F32, *kept, n) == TN_OK;
    *kept = (float *)malloc((size_t)n * sizeof **kept);
    return *kept && tn_read(t, TN_F32, *kept, n) == TN_OK;
}

static void zero(tn_tensor *t) { if (t) tn_assign(t, tn_full(ctx, t->rank, t->shape, 0)); }

/* The columns of a head in the matrix after attention become 0, so that it adds nothing. */
static void drop_head(const tn_attention *a, int64_t head)
{
    zero(tn_slice(a->o, 1, head * a->desc.d_v, (head + 1) * a->desc.d_v));
}

static void drop_mlp(tn_transformer_block *b)
{
    zero(b->mlp.p ? b->mlp.p : b->mlp.w);
    zero(b->mlp.p ? b->mlp.pb : b->mlp.b);
    if (net.desc.norm_place == TN_PLACE_SANDWICH) zero(b->norm2_out.bias);
}

/* Encoders that do not see `count` rows (v, c) of unseen_rows. They read x = g * u + h, with the gain and the bias of the norm
   and u orthogonal to the constants that it removes, and shall read g * (u - sum (v . u + c) v) + h instead:
       w' = w - sum a (v / g)^T     b' = b + sum a (v . (h / g) - c)     a = w (g * v) */
static bool drop_vectors(tn_transformer_block *b, whole_block *kept, const double *rows, int64_t count)
{
    const int64_t dim = net.desc.dim, units = tn_tensor_count(b->mlp.w) / dim;
    double       *w = (double *)malloc((size_t)(units * (dim + 1) + 3 * dim) * sizeof *w);
    if (!w) return false;
    double *bias = w + units * dim, *gain = bias + units, *shift = gain + dim, *v = shift + dim;
    tn_read(b->mlp.w, TN_F64, w, units * dim);
    for (int64_t i = 0; i < units; i++) bias[i] = 0;
    if (b->mlp.b) tn_read(b->mlp.b, TN_F64, bias, units);
    read_vector(net.desc.no_norm ? NULL : b->norm2.gain, 1, gain);
    read_vector(net.desc.no_norm ? NULL : b->norm2.bias, 0, shift);
    double moved = 0;
    for (int64_t r = 0; r < count; r++) {
        const double *row = rows + r * (dim + 1);
        double        fixed = -row[dim];
        for (int64_t k = 0; k < dim; k++) {
            v[k] = gain[k] != 0 ? row[k] / gain[k] : 0;
            fixed += v[k] * shift[k];
        }
        for (int64_t i = 0; i < units; i++) {
            double a = 0;
            for (int64_t k = 0; k < dim; k++) a += w[i * dim + k] * gain[k] * row[k];
            for (int64_t k = 0; k < dim; k++) w[i * dim + k] -= a * v[k];
            bias[i] += a * fixed;
        }
        moved += fabs(fixed);
    }
    tn_write(b->mlp.w, TN_F64, w, units * dim);
    if (!b->mlp.b && moved > 0) {
        if (!kept->made) kept->made = tn_tensor_create(ctx, TN_REAL, 2, b->mlp.w->shape);
        b->mlp.b = kept->made;
    }
    if (b->mlp.b) tn_write(b->mlp.b, TN_F64, bias, units);
    free(w);
    return tn_ctx_status(ctx) == TN_OK;
}

/* Makes the model of what is not ablated, in place, so that each answer is of this model, whatever computes it. Only blocks
   that differ from the last time are written. False: the context has an error, or no memory. */
static bool as_ablated(void)
{
    const int64_t heads = net.desc.heads;
    for (int64_t l = 0; l < net.desc.layers; l++) {
        tn_transformer_block *b = &net.blocks[l];
        whole_block          *kept = &whole_list[l];
        const bool           *gone = off + l * (heads + 1);
        double               *rows = NULL;
        if (!kept->changed) continue;
        forget_vectors(&vector_list[l]);
        if (kept->made && b->mlp.b == kept->made) b->mlp.b = NULL;
        if (!put_back(&kept->w, b->mlp.w) || !put_back(&kept->b, b->mlp.b) || !put_back(&kept->p, b->mlp.p)
            || !put_back(&kept->pb, b->mlp.pb) || !put_back(&kept->o, b->attn.o)
            || (net.desc.norm_place == TN_PLACE_SANDWICH && !put_back(&kept->out, b->norm2_out.bias))) return false;
        for (int64_t h = 0; h < heads; h++) if (gone[h]) drop_head(&b->attn, h);
        const int64_t count = gone[heads] ? 0 : unseen_rows(l, &rows);
        bool          made = count >= 0 && (!count || drop_vectors(b, kept, rows, count));
        if (gone[heads]) drop_mlp(b);
        free(rows);
        if (!made || tn_ctx_status(ctx) != TN_OK) return false;
        kept->changed = false;
    }
    return true;
}

/* Logits of the token after the text, in `numbers`. */
static bool logits_of_text(void)
{
    tn_tensor *x = as_ablated() ? tn_transformer_hidden(ctx, &net, ids_tensor(text)) : NULL;
    tn_tensor *y = tn_transformer_unembed(ctx, &net, tn_slice(x, 1, length - 1, length));
    return tn_read(y, TN_F64, numbers, net.desc.vocab) == TN_OK;
}

/* The next token of the text, without what is ablated. Returns the vocabulary; numbers: the logits, then the
   probabilities. */
int EXPORT(live_next)(void)
{
    const int64_t V = net.desc.vocab;
    double        sum = 0;
    if (!length) return refuse("the text has no tokens");
    if (!begin(2 * V) || !logits_of_text()) return end(-1);
    double most = numbers[0];
    for (int64_t i = 1; i < V; i++) if (numbers[i] > most) most = numbers[i];
    for (int64_t i = 0; i < V; i++) sum += numbers[V + i] = exp(numbers[i] - most);
    for (int64_t i = 0; i < V; i++) numbers[V + i] /= sum;
    return end(V);
}

/* What each part of the model, without what is ablated, adds to the logit of `token` after the text: direct logit attribution.
   Returns the number of parts; numbers: one per part; words: their names. */
int EXPORT(live_parts)(int token)
{
    const int64_t parts = tn_transformer_parts(&net, NULL, 0);
    tn_point     *list = (tn_point *)malloc((size_t)(parts ? parts : 1) * sizeof *list);
    const bool    made = length && list && as_ablated() && begin(parts);
    if (made) {
        int32_t same[MOST_TOKENS];
        for (int64_t i = 0; i < length; i++) same[i] = token;
        tn_tensor *y = tn_transformer_attribution(ctx, &net, ids_tensor(text), ids_tensor(same), NULL);
        tn_read(tn_slice(y, 1, length - 1, length), TN_F64, numbers, parts);
        tn_transformer_parts(&net, list, parts);
        for (int64_t i = 0; i < parts; i++) say(list[i].name);
    }
    free(list);
    if (!length) return refuse("the text has no tokens");
    return end(made ? parts : -1);
}

/* Where the tokens of the text look in a block: numbers [heads,length,length]. Returns the number of heads. */
int EXPORT(live_patterns)(int block)
{
    const int64_t n = net.desc.heads * length * length;
    if (!block_is(block)) return refuse("there is no such block");
    if (!length) return refuse("the text has no tokens");
    if (!as_ablated() || !begin(n)) return end(-1);
    tn_read(tn_transformer_pattern(ctx, &net, ids_tensor(text), block), TN_F64, numbers, n);
    return end(net.desc.heads);
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

/* The paths that add most to the logit of `token` after the text, in the model without what is ablated. Returns their number,
   at most `top`; numbers: the logit, the sum of all paths that were found, the sum of the others; then the value of each path;
   words: their names. */
int EXPORT(live_paths)(int token, int budget, int top)
{
    tn_circuit_frozen     frozen;
    tn_circuit_target     target;
    tn_circuit_paths_desc desc;
    tn_circuit_paths      paths;
    int64_t               count = 0;
    bool                  made = true;
    if (!length) return refuse("the text has no tokens");
    memset(&target, 0, sizeof target);
    memset(&desc, 0, sizeof desc);
    target.position = length - 1;
    target.token = token;
    desc.budget = budget;
    if (!as_ablated() || tn_circuit_freeze(ctx, &net, ids_tensor(text), &frozen) != TN_OK) return end(-1);
    if (tn_circuit_paths_find(&frozen, &target, &desc, &paths) == TN_OK) {
        count = paths.count < top ? paths.count : top;
        made = begin(3 + count);
        if (made) {
            numbers[0] = paths.whole;
            numbers[1] = paths.found;
            numbers[2] = paths.rest;
            for (int64_t i = 0; i < count; i++) {
                numbers[3 + i] = paths.node[paths.path[i]].value;
                say_path(&paths, paths.path[i]);
            }
        }
        tn_circuit_paths_destroy(&paths);
    }
    tn_circuit_frozen_destroy(&frozen);
    return made ? end(count) : refuse("out of memory");
}

/* ---- eigenvectors of an MLP ------------------------------------------------------------------------------------------- */

/* The eigenpairs of a token in a block, computed when they are asked for; false: the context has an error, or no memory. */
static bool vectors_of(int64_t block, int64_t token)
{
    const uint64_t mark = tn_cp_mark(ctx);
    vectors       *v = &vector_list[block];
    tn_eigenpairs  e;
    if (v->vector && v->token == token) return true;
    tn_cp     *cp = tn_circuit_mlp(ctx, &net, block);
    tn_tensor *u = cp ? tn_circuit_unembedding(ctx, &net) : NULL;
    u = u ? tn_reshape(tn_slice(u, 0, token, token + 1), 1, &net.desc.dim) : NULL;
    forget_vectors(v);
    if (u && tn_cp_eigen(cp, u, VECTORS, &e) == TN_OK) {
        v->token = token;
        v->count = e.count;
        v->n = e.n;
        v->value = (double *)malloc((size_t)e.count * sizeof *v->value);
        v->vector = (double *)malloc((size_t)(e.count * e.n) * sizeof *v->vector);
        if (v->value && v->vector) {
            tn_read(e.values, TN_F64, v->value, e.count);
            tn_read(e.vectors, TN_F64, v->vector, e.count * e.n);
        }
        tn_eigenpairs_destroy(&e);
    }
    tn_cp_release(ctx, mark, NULL);
    if (v->value && v->vector) return true;
    forget_vectors(v);
    return false;
}

/* What the last position of a run has at some points. */
typedef struct last_position { int64_t block; double *stream, *mlp /* [dim] each */, scale, end; } last_position;

static tn_tensor *read_last(tn_ctx *c, void *user, const char *name, tn_tensor *x)
{
    last_position *l = (last_position *)user;
    (void)c;
    if (!strcmp(name, "norm.scale")) tn_read(tn_slice(x, 1, length - 1, length), TN_F64, &l->end, 1);
    else if (block_of(name) == l->block) {
        const bool one = ends(name, ".scale");
        tn_read(tn_slice(x, 1, length - 1, length), TN_F64, one ? &l->scale : ends(name, ".mlp") ? l->mlp : l->stream,
                one ? 1 : net.desc.dim);
    }
    return x;
}

static tn_tensor *read_embedding(tn_ctx *c, void *user, const char *name, tn_tensor *x)
{
    (void)c;
    (void)name;
    tn_read(x, TN_F32, (float *)user, tn_tensor_count(x));
    return NULL;                                /* nothing after it is needed */
}

/* The embeddings of all tokens over the denominator of their norm. */
static bool embed_tokens(void)
{
    const int64_t V = net.desc.vocab, dim = net.desc.dim, most = 512;
    tn_tap        tap = {"embed", read_embedding, NULL};
    if (token_list) return true;
    token_list = (float *)calloc((size_t)(V * dim), sizeof *token_list);
    for (int64_t first = 0; token_list && first < V; first += most) {
        const int64_t count = V - first < most ? V - first : most;
        int32_t       ids[512];
        tn_tensor    *t = tn_tensor_2d(ctx, TN_I32, count, 1);
        for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)(first + i);
        tn_write(t, TN_I32, ids, count);
        tap.user = token_list + first * dim;
        tn_transformer_run(ctx, &net, t, &tap, 1);
        tn_ctx_clear_error(ctx);                /* that the run was stopped */
        tn_ctx_reset(ctx);
    }
    for (int64_t i = 0; token_list && i < V && !net.desc.no_norm; i++) {
        float *row = token_list + i * dim;
        double mean = 0, square = 0;
        for (int64_t k = 0; k < dim && net.blocks[0].norm1.desc.kind == TN_NORM_LAYER; k++) mean += (double)row[k] / (double)dim;
        for (int64_t k = 0; k < dim; k++) square += ((double)row[k] - mean) * ((double)row[k] - mean) / (double)dim;
        for (int64_t k = 0; k < dim; k++) row[k] /= (float)sqrt(square + net.blocks[0].norm1.desc.eps);
    }
    return token_list != NULL;
}

/* The tokens that lie most along a vector, or against it: ids [NEAREST]. */
static void nearest_tokens(const double *vector, int sign, double *ids)
{
    double  best[NEAREST];
    int64_t k, kept = 0;
    for (int64_t i = 0; i < net.desc.vocab; i++) {
        const float *row = token_list + i * net.desc.dim;
        double       dot = 0;
        for (k = 0; k < net.desc.dim; k++) dot += (double)row[k] * vector[k];
        dot *= sign;
        if (kept == NEAREST && !(dot > best[NEAREST - 1])) continue;
        if (kept < NEAREST) kept++;
        for (k = kept - 1; k > 0 && dot > best[k - 1]; k--) best[k] = best[k - 1], ids[k] = ids[k - 1];
        best[k] = dot;
        ids[k] = (double)i;
    }
}

/* What the eigenvectors of `token` in the MLP of a block add to its logit after the text, in the order of |value|, at most
   VECTORS, in the model without what is ablated. Returns their number; numbers: of each its value, vector . [z;1], what it
   adds, and, of the NAMED that add most, the ids of NEAREST tokens that lie on this side of it (-1: none); then what the MLP
   adds; then the vectors, each of width numbers, or one more with a constant. */
int EXPORT(live_vectors)(int block, int token)
{
    enum { EACH = 3 + NEAREST };
    static const char *const points[4] = {"blocks.*.middle", "blocks.*.mlp", "blocks.*.norm2.scale", "norm.scale"};
    const int64_t dim = net.desc.dim;
    last_position last;
    tn_tap        taps[4];
    double        total = 0;
    int64_t       k;
    if (!block_is(block) || token < 0 || token >= net.desc.vocab) return refuse("there is no such block or token");
    if (!length) return refuse("the text has no tokens");
    if (!as_ablated() || !vectors_of(block, token)) return end(-1);
    vectors *v = &vector_list[block];
    double  *u = (double *)malloc((size_t)(3 * dim) * sizeof *u);
    if (!u || !embed_tokens() || !begin((EACH + v->n) * v->count + 1)) {
        free(u);
        return refuse("out of memory");
    }
    memset(&last, 0, sizeof last);
    last.block = block;
    last.stream = u + dim;
    last.mlp = u + 2 * dim;
    last.scale = last.end = 1;
    for (k = 0; k < 4; k++) {
        taps[k].points = points[k];
        taps[k].fn = read_last;
        taps[k].user = &last;
    }
    tn_transformer_run(ctx, &net, ids_tensor(text), taps, net.desc.no_norm ? 2 : 4);
    tn_read(tn_slice(tn_circuit_unembedding(ctx, &net), 0, token, token + 1), TN_F64, u, dim);
    for (int64_t i = 0; i < dim; i++) total += u[i] * last.mlp[i] * last.end;
    for (k = 0; k < v->count; k++) {
        const double *vector = v->vector + k * v->n;
        double       *to = numbers + EACH * k, dot = v->n > dim ? vector[dim] : 0;
        for (int64_t i = 0; i < dim; i++) dot += vector[i] * last.stream[i] * last.scale;
        to[0] = v->value[k];
        to[1] = dot;
        to[2] = v->value[k] * dot * dot * last.end;
    }
    for (k = 0; k < v->count; k++) {
        double *to = numbers + EACH * k;
        int64_t more = 0;
        for (int64_t i = 0; i < v->count; i++) {
            const double size = fabs(numbers[EACH * i + 2]);
            more += size > fabs(to[2]) || (i < k && size == fabs(to[2]));
        }
        for (int64_t i = 0; i < NEAREST; i++) to[3 + i] = -1;
        if (more < NAMED) nearest_tokens(v->vector + k * v->n, to[1] < 0 ? -1 : 1, to + 3);
    }
    numbers[EACH * k] = total;
    memcpy(numbers + EACH * k + 1, v->vector, (size_t)(v->count * v->n) * sizeof *numbers);
    free(u);
    return end(v->count);
}

/* Hides an eigenvector of a token, `vector` as live_vectors has it, from the MLP of its block: the part of the normed stream
   along it is removed, so that vector . [z;1] is 0. k: a number by which the page knows it, since live_vectors does not count
   it any more. Without numbers (n is 0) it is shown again. */
int EXPORT(live_hide)(int block, int token, int k, const double *vector, size_t n)
{
    unseen **at = &unseen_list, *one;
    if (!block_is(block) || token < 0 || token >= net.desc.vocab) return refuse("there is no such block or token");
    if (n && (k < 0 || ((int64_t)n != net.desc.dim && (int64_t)n != net.desc.dim + 1)))
        return refuse("this is not an eigenvector of the block");
    while (*at && !((*at)->block == block && (*at)->token == token && (*at)->pair == k)) at = &(*at)->next;
    if (*at && !n) {
        one = *at;
        *at = one->next;
        free(one->vector);
        free(one);
    }
    whole_list[block].changed = true;
    if (*at || !n) return 0;
    one = (unseen *)calloc(1, sizeof *one);
    if (one) one->vector = (double *)malloc(n * sizeof *one->vector);
    if (!one || !one->vector) {
        free(one);
        return refuse("out of memory");
    }
    one->block = block;
    one->token = token;
    one->pair = k;
    one->n = (int64_t)n;
    memcpy(one->vector, vector, n * sizeof *one->vector);
    *at = one;
    return end(0);
}

/* ---- ablation --------------------------------------------------------------------------------------------------------- */

/* Restores all that is ablated or hidden. */
int EXPORT(live_restore)(void)
{
    see_all();
    if (off) memset(off, 0, (size_t)(net.desc.layers * (net.desc.heads + 1)) * sizeof *off);
    for (int64_t l = 0; whole_list && l < net.desc.layers; l++) whole_list[l].changed = whole_list[l].o != NULL;
    for (int64_t c = 0; class_list && c < quadratic->out; c++)
        if (class_list[c].off) memset(class_list[c].off, 0, (size_t)class_list[c].count * sizeof *class_list[c].off);
    return 0;
}

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
    whole_list[a].changed = true;
    return 0;
}
