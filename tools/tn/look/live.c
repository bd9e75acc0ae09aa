/* live.c - a model that answers inside a page: predictions, what spoke for them, what ablations and steering change

   wasm.sh compiles this file and its parts, live_images.inl, live_vectors.inl and live_steer.inl, with the library to
   WebAssembly, and live.js calls it. Every call leaves its numbers in wasm_numbers and its texts in wasm_words (wasm.h), and
   returns how many there are, or -1 with the reason in wasm_words.

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
static int64_t        asked;            /* what is asked is about the first `asked` tokens of the text        */
static bool           no_mark;          /* a text begins without [BOS]                                */

/* Of each block: the eigenpairs of the token that was last asked for, in the order of |value|. The MLP adds to its logit
   the sum of value (vector . [z;1])^2 over the denominator of the last norm; z is the normed stream, before the gain. */
typedef struct vectors { int64_t token, count, n; double *value, *vector /* [count,n] */; } vectors;
/* An eigenvector that the MLP of its block does not see. */
typedef struct unseen { int64_t block, token, pair, n; double *vector; struct unseen *next; } unseen;
/* The weights of a block as they are in the file, kept when something of it is first ablated; changed: what is ablated is not
   what its weights say. made, made_middle: biases of encoders, and before the middle, that had none, or NULL. */
typedef struct whole_block { float *w, *b, *p, *pb, *o, *out, *middle; tn_tensor *made, *made_middle; bool changed; } whole_block;
static vectors *vector_list;            /* [layers], NULL vectors until they are needed     */
static whole_block *whole_list;         /* [layers]                                         */
static unseen  *unseen_list;
static double  *steering;               /* [dim] what is added to the stream at blocks.B.middle, or NULL */
static int64_t  steered;                /* B                                                             */
static bool     own_bias;               /* desc.attn_out_bias of the file                                */
/* What is known of a text in one model: of `known` tokens the keys and values, the logits after each, and the losses. What was
   computed of the tokens before the first that is typed anew stays. */
typedef struct reading {
    tn_transformer_cache *cache;
    float   *logits;                    /* [room,vocab]                                 */
    double   losses[MOST_TOKENS];       /* of each token but the first                  */
    int32_t  text[MOST_TOKENS];
    int64_t  known, room;
    uint64_t model;                     /* the checksum of what is changed in the model */
} reading;
static reading  whole_reading, other_reading;   /* of the whole model, and of the last one that is changed */
static uint64_t present;                        /* the checksum of the present model, 0 of the whole one   */
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
        free(w->w), free(w->b), free(w->p), free(w->pb), free(w->o), free(w->out), free(w->middle);
    }
    free(steering);
    steering = NULL;
    free(whole_reading.logits);
    free(other_reading.logits);
    memset(&whole_reading, 0, sizeof whole_reading);        /* the context frees the caches */
    memset(&other_reading, 0, sizeof other_reading);
    present = 0;
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
    length = asked = 0;
}

#include "live_images.inl"

/* ---- language models -------------------------------------------------------------------------------------------------- */

/* Opens a language model. Returns its vocabulary; numbers: vocabulary, blocks, heads of a block, width; words: the names
   of all tokens. */
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
    own_bias = net.desc.attn_out_bias;
    for (int64_t l = 0; l < net.desc.layers; l++) net.blocks[l].attn.desc.form = TN_ATTEND_FORM_QUADRATIC;   /* to rewind */
    off = (bool *)calloc((size_t)(net.desc.layers * (net.desc.heads + 1)), sizeof *off);
    vector_list = (vectors *)calloc((size_t)net.desc.layers, sizeof *vector_list);
    whole_list = (whole_block *)calloc((size_t)net.desc.layers, sizeof *whole_list);
    names = (const char **)malloc((size_t)net.desc.vocab * sizeof *names);
    if (!off || !vector_list || !whole_list || !names || !begin(4)) return refuse("out of memory");
    for (int64_t i = 0; i < net.desc.vocab; i++) {
        names[i] = tn_tokenizer_token(tokenizer, i);
        if (!names[i]) names[i] = "";           /* an imported model may have more rows than its tokenizer tokens */
        if (!say(names[i])) return refuse("out of memory");
    }
    numbers[0] = (double)net.desc.vocab;
    numbers[1] = (double)net.desc.layers;
    numbers[2] = (double)net.desc.heads;
    numbers[3] = (double)net.desc.dim;
    return end(net.desc.vocab);
}

/* Whether a text begins with [BOS], if the tokenizer has one; a model may never have learnt what follows it. */
int EXPORT(live_marks)(int wanted)
{
    no_mark = !wanted;
    return 0;
}

static int64_t most_tokens(void)
{
    return net.desc.positions == TN_POSITIONS_LEARNED && net.desc.context < MOST_TOKENS ? net.desc.context : MOST_TOKENS;
}

/* Reads a text, of which the end is asked for. Of more tokens than MOST_TOKENS, or learned positions, the first ones are left
   out, by a quarter of that number at a time, so that most keys leave the beginning as it is. Returns the number of those that
   are left; numbers: their ids. */
int EXPORT(live_text)(const char *bytes, size_t count)
{
    const tn_bos bos = tn_tokenizer_bos(tokenizer) >= 0 && !no_mark ? TN_BOS_FIRST : TN_BOS_NONE;
    const int64_t most = most_tokens(), step = (most + 3) / 4;
    if (!tokenizer) return refuse("no language model is open");
    const int64_t all = tn_tokenizer_encode(tokenizer, bytes, count, bos, NULL, 0, NULL);
    int32_t      *ids = (int32_t *)malloc((size_t)(all > 0 ? all : 1) * sizeof *ids);
    const int64_t left = all <= most ? all : all - (all - most + step - 1) / step * step;
    const bool    made = all >= 0 && ids && begin(left)
                         && tn_tokenizer_encode(tokenizer, bytes, count, bos, ids, all, NULL) == all;
    length = asked = made ? left : 0;
    for (int64_t i = 0; i < length; i++) numbers[i] = text[i] = ids[all - length + i];
    free(ids);
    return end(made ? length : -1);
}

/* Asks about another position of the text: of what follows the token there. Returns the number of tokens up to it. */
int EXPORT(live_at)(int position)
{
    if (position < 0 || position >= length) return refuse("the text has no such position");
    asked = position + 1;
    return begin(0) ? end(asked) : end(-1);
}

static tn_tensor *ids_tensor(const int32_t *ids, int64_t count)
{
    tn_tensor *t = tn_tensor_2d(ctx, TN_I32, 1, count);
    tn_write(t, TN_I32, ids, count);
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

/* The bias that a block adds before its middle, where there can be one: attention's own, or that of the norm after it. */
static tn_tensor **bias_before_middle(tn_transformer_block *b)
{
    tn_norm *norm = net.desc.norm_place == TN_PLACE_SANDWICH ? &b->norm1_out : &b->norm1;
    if (net.desc.norm_place == TN_PLACE_PRE) return &b->attn.ob;
    return norm->desc.kind == TN_NORM_LAYER ? &norm->bias : NULL;
}

/* Steers the block: the vector becomes a part of that bias, and so of whatever the library computes of the model. */
static bool steer(whole_block *kept, tn_tensor **bias)
{
    const double scale = net.desc.norm_place == TN_PLACE_POST ? 1 : net.desc.attn_scale;
    tn_tensor   *v = tn_tensor_nd(ctx, TN_REAL, 1, &net.desc.dim);
    if (!*bias) {
        if (!kept->made_middle) kept->made_middle = tn_tensor_create(ctx, TN_REAL, 1, &net.desc.dim);
        *bias = kept->made_middle;
        zero(*bias);
    }
    tn_write(v, TN_F64, steering, net.desc.dim);
    tn_assign(*bias, tn_add(ctx, *bias, tn_scale(ctx, v, 1 / scale)));
    return tn_ctx_status(ctx) == TN_OK;
}

static void add_bytes(uint64_t *sum, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) *sum = (*sum ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;     /* FNV-1a */
}

/* A checksum of what is ablated and added, which tells the changed models apart; 0 of the whole model. */
static uint64_t checksum_of_changes(void)
{
    const size_t heads = (size_t)(net.desc.layers * (net.desc.heads + 1));
    uint64_t     sum = 14695981039346656037u;
    bool         any = steering || unseen_list;
    for (size_t i = 0; i < heads; i++) any = any || off[i];
    add_bytes(&sum, off, heads * sizeof *off);
    for (const unseen *u = unseen_list; u; u = u->next) {
        add_bytes(&sum, &u->block, sizeof u->block);
        add_bytes(&sum, u->vector, (size_t)u->n * sizeof *u->vector);
    }
    if (steering) add_bytes(&sum, &steered, sizeof steered);
    if (steering) add_bytes(&sum, steering, (size_t)net.desc.dim * sizeof *steering);
    return any ? sum | 1 : 0;
}

/* Makes the model of what is not ablated, and with what is added, in place, so that each answer is of this model, whatever
   computes it. Only blocks that differ from the last time are written. False: the context has an error, or no memory. */
static bool as_ablated(void)
{
    const int64_t heads = net.desc.heads;
    bool          changed = false;
    for (int64_t l = 0; l < net.desc.layers; l++) {
        tn_transformer_block *b = &net.blocks[l];
        whole_block          *kept = &whole_list[l];
        const bool           *gone = off + l * (heads + 1);
        tn_tensor           **bias = bias_before_middle(b);
        double               *rows = NULL;
        if (!kept->changed) continue;
        changed = true;
        forget_vectors(&vector_list[l]);
        if (kept->made && b->mlp.b == kept->made) b->mlp.b = NULL;
        if (bias && kept->made_middle && *bias == kept->made_middle) *bias = NULL;
        if (!put_back(&kept->w, b->mlp.w) || !put_back(&kept->b, b->mlp.b) || !put_back(&kept->p, b->mlp.p)
            || !put_back(&kept->pb, b->mlp.pb) || !put_back(&kept->o, b->attn.o) || (bias && !put_back(&kept->middle, *bias))
            || (net.desc.norm_place == TN_PLACE_SANDWICH && !put_back(&kept->out, b->norm2_out.bias))) return false;
        for (int64_t h = 0; h < heads; h++) if (gone[h]) drop_head(&b->attn, h);
        const int64_t count = gone[heads] ? 0 : unseen_rows(l, &rows);
        bool          made = count >= 0 && (!count || drop_vectors(b, kept, rows, count));
        if (gone[heads]) drop_mlp(b);
        if (made && steering && steered == l) made = steer(kept, bias);
        free(rows);
        if (!made || tn_ctx_status(ctx) != TN_OK) return false;
        kept->changed = false;
    }
    if (changed) present = checksum_of_changes();
    return true;
}

enum { AT_ONCE = 1 << 20 };             /* logits that are computed together, or more of one token */

/* The losses of the tokens of the text from `from` on, 1 or more, from the logits after those before them. */
static bool compute_losses(reading *r, int64_t from)
{
    const int64_t V = net.desc.vocab, most = AT_ONCE / V + 1;
    for (int64_t at = from, next; at < length; at = next) {
        next = at + most < length ? at + most : length;
        tn_tensor *y = tn_tensor_2d(ctx, TN_REAL, next - at, V);
        tn_write(y, TN_F32, r->logits + (at - 1) * V, (next - at) * V);
        y = tn_log_softmax(ctx, y);
        for (int64_t i = at; i < next; i++) {
            tn_tensor *one = tn_slice(tn_slice(y, 0, i - at, i - at + 1), 1, text[i], text[i] + 1);
            if (tn_read(one, TN_F64, &r->losses[i], 1) != TN_OK) return false;
            r->losses[i] = -r->losses[i];
        }
        tn_ctx_reset(ctx);
    }
    return true;
}

/* Adds the tokens of the text from `from` on to what is known of those before them. */
static bool read_on(reading *r, int64_t from)
{
    const int64_t V = net.desc.vocab, most = AT_ONCE / V + 1;
    if (!r->cache) r->cache = tn_transformer_cache_create(ctx, &net, 1, most_tokens());
    if (tn_transformer_cache_rewind(r->cache, from) != TN_OK) return false;
    if (r->room < length) {
        const int64_t room = length + 16 < MOST_TOKENS ? length + 16 : MOST_TOKENS;
        float        *more = (float *)realloc(r->logits, (size_t)(room * V) * sizeof *more);
        if (!more) return false;
        r->logits = more;
        r->room = room;
    }
    for (int64_t at = from, next; at < length; at = next) {
        next = at + most < length ? at + most : length;
        tn_tensor *y = tn_transformer_decode(ctx, &net, ids_tensor(text + at, next - at), r->cache);
        if (tn_read(y, TN_F32, r->logits + at * V, (next - at) * V) != TN_OK) return false;
        tn_ctx_reset(ctx);
    }
    return compute_losses(r, from > 0 ? from : 1);
}

/* What is known of the text in the present model, after computing what was not; NULL: the context has an error, or no memory.
   Not of a bidirectional model. */
static const reading *read_text(void)
{
    if (!as_ablated()) return NULL;
    reading *r = present ? &other_reading : &whole_reading;
    int64_t  from = 0;
    while (r->model == present && from < r->known && from < length && r->text[from] == text[from]) from++;
    if (from == length) return r;
    r->known = 0;
    if (!read_on(r, from)) return NULL;
    memcpy(r->text, text, (size_t)length * sizeof *text);
    r->known = length;
    r->model = present;
    return r;
}

/* Logits [vocab] of the token after the position that is asked for. A bidirectional model has the text up to there. */
static bool logits_at_end(double *to)
{
    const int64_t  V = net.desc.vocab;
    const reading *r;
    if (net.desc.bidirectional) {
        tn_tensor *x = as_ablated() ? tn_transformer_hidden(ctx, &net, ids_tensor(text, asked)) : NULL;
        return tn_read(tn_transformer_unembed(ctx, &net, tn_slice(x, 1, asked - 1, asked)), TN_F64, to, V) == TN_OK;
    }
    if (!(r = read_text())) return false;
    for (int64_t i = 0; i < V; i++) to[i] = (double)r->logits[(asked - 1) * V + i];
    return true;
}

/* The token after the position that is asked for, without what is ablated. Returns the vocabulary; numbers: the logits, then
   the probabilities. */
int EXPORT(live_next)(void)
{
    const int64_t V = net.desc.vocab;
    double        sum = 0;
    if (!length) return refuse("the text has no tokens");
    if (!begin(2 * V) || !logits_at_end(numbers)) return end(-1);
    double most = numbers[0];
    for (int64_t i = 1; i < V; i++) if (numbers[i] > most) most = numbers[i];
    for (int64_t i = 0; i < V; i++) sum += numbers[V + i] = exp(numbers[i] - most);
    for (int64_t i = 0; i < V; i++) numbers[V + i] /= sum;
    return end(V);
}

/* The losses of the tokens of the text in nats, each after all tokens before it, without what is ablated. Returns their number,
   one less than that of the tokens, since nothing is before the first. */
int EXPORT(live_losses)(void)
{
    if (!length) return refuse("the text has no tokens");
    if (net.desc.bidirectional) return refuse("each token sees those after it, so that none has a loss");
    const reading *r = read_text();
    if (!r || !begin(length - 1)) return end(-1);
    memcpy(numbers, r->losses + 1, (size_t)(length - 1) * sizeof *numbers);
    return end(length - 1);
}

/* What each part of the model, without what is ablated, adds to the logit of `token` after the position that
   is asked for: direct logit attribution.
   Returns the number of parts; numbers: one per part; words: their names. */
int EXPORT(live_parts)(int token)
{
    const bool    same_model = length && as_ablated();      /* steering is a part, too */
    const int64_t parts = tn_transformer_parts(&net, NULL, 0);
    tn_point     *list = (tn_point *)malloc((size_t)(parts ? parts : 1) * sizeof *list);
    const bool    made = same_model && list && begin(parts);
    if (made) {
        int32_t same[MOST_TOKENS];
        for (int64_t i = 0; i < asked; i++) same[i] = token;
        tn_tensor *y = tn_transformer_attribution(ctx, &net, ids_tensor(text, asked), ids_tensor(same, asked), NULL);
        tn_read(tn_slice(y, 1, asked - 1, asked), TN_F64, numbers, parts);
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
    tn_read(tn_transformer_pattern(ctx, &net, ids_tensor(text, length), block), TN_F64, numbers, n);
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

/* The paths that add most to the logit of `token` after the position that is asked for, in the model without what is ablated.
   Returns their number, at most `top`; numbers: the logit, the sum of all paths that were found, the sum of the others; then
   the value of each path; words: their names. */
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
    target.position = asked - 1;
    target.token = token;
    desc.budget = budget;
    if (!as_ablated() || tn_circuit_freeze(ctx, &net, ids_tensor(text, asked), &frozen) != TN_OK) return end(-1);
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

#include "live_vectors.inl"

#include "live_steer.inl"

/* ---- ablation --------------------------------------------------------------------------------------------------------- */

/* Restores all that is ablated or hidden, and adds nothing. */
int EXPORT(live_restore)(void)
{
    see_all();
    if (off) live_steer(0, NULL, 0);
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
